// Command draw draws the pictures of the documentation. Run it in the root of the repository:
//
//	go run ./internal/proof/draw
//
// A picture is an SVG with two sets of colours, for light and dark pages. All its words are
// text, and its title and description say in words what it shows.
package main

import (
	"log"
	"os"
	"path/filepath"
)

// pictures are the files of docs/pictures.
var pictures = map[string]func() string{
	"eager.svg":       eager,
	"cooperative.svg": cooperative,
	"trust.svg":       trust,
	"packages.svg":    packages,
	"phases.svg":      phases,
}

func main() {
	for name, draw := range pictures {
		if err := os.WriteFile(filepath.Join("docs", "pictures", name), []byte(draw()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
