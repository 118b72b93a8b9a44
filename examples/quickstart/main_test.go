package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands that the program recommends at its end exist.
func TestTryNext(t *testing.T) {
	commands := regexp.MustCompile(`  go (?:run|test).*?(?:-run (\w+) )?\./examples/(\w+)`).FindAllStringSubmatch(next, -1)
	if len(commands) < 2 {
		t.Errorf("%d commands", len(commands))
	}
	for _, c := range commands {
		files, _ := filepath.Glob(filepath.Join("..", c[2], "*.go"))
		var code strings.Builder
		for _, name := range files {
			text, _ := os.ReadFile(name)
			code.WriteString(string(text))
		}
		if !strings.Contains(code.String(), "func main()") || c[1] != "" && !strings.Contains(code.String(), "func "+c[1]+"(t ") {
			t.Errorf("%s cannot be run", c[0])
		}
	}
}
