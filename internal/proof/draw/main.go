// Command draw draws the pictures of the documentation, and writes the dashboard and the alerts of docs/deploy. Run it in the
// root of the repository:
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

	"github.com/shardlease/shardlease-go/internal/proof/board"
)

// pictures are the files of docs/pictures.
var pictures = map[string]func() string{
	"eager.svg":       eager,
	"cooperative.svg": cooperative,
	"trust.svg":       trust,
	"packages.svg":    packages,
	"phases.svg":      phases,
}

// monitoring are files of docs/deploy.
var monitoring = map[string]func() string{
	"grafana.json":          board.Dashboard,
	"prometheus-rules.yaml": board.Rules,
}

func main() {
	for folder, files := range map[string]map[string]func() string{"pictures": pictures, "deploy": monitoring} {
		for name, draw := range files {
			if err := os.WriteFile(filepath.Join("docs", folder, name), []byte(draw()), 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
}
