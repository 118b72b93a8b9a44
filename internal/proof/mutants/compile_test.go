package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A checker type-checks packages with some of their files replaced, which takes a tenth of the time of go build.
type checker struct {
	set      *token.FileSet
	packages []listed // those that have mutants
	imports  types.Importer
}

// listed is the description of a package by go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	var dirs []string
	for _, m := range all() {
		if dir := "./" + folder(m.at); !slices.Contains(dirs, dir) && exists(dir) {
			dirs = append(dirs, dir)
		}
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, dirs...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	c := &checker{set: token.NewFileSet()}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			c.packages = append(c.packages, p)
		}
	}
	c.imports = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(root, dir))
	return err == nil
}

// A mistake is a compile error in a mutated package, with the number of the mutant.
type mistake struct {
	number int
	error
}

// mistakes type-checks all packages. The texts replace files, or add some.
func (c *checker) mistakes(t *testing.T, texts map[string]string) (found []mistake) {
	t.Helper()
	for _, p := range c.packages {
		dir, err := filepath.Rel(abs(t, root), p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, name := range append(p.GoFiles, "mutant_number.go") {
			path := filepath.ToSlash(filepath.Join(dir, name))
			var text any // without one, the parser reads the file
			if changed, ok := texts[path]; ok {
				text = changed
			}
			f, err := parser.ParseFile(c.set, filepath.Join(root, path), text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		config := types.Config{Importer: c.imports, Error: func(err error) {
			found = append(found, mistake{number(files, err.(types.Error).Pos), err})
		}}
		_, _ = config.Check(p.ImportPath, c.set, files, nil)
	}
	return found
}

// number returns the number of the mutant whose copy of a function is at a place; 0: it is in no copy.
func number(files []*ast.File, at token.Pos) (n int) {
	for _, f := range files {
		for _, d := range f.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Pos() <= at && at < decl.End() {
				_, text, _ := strings.Cut(decl.Name.Name, copied)
				n, _ = strconv.Atoi(text)
			}
		}
	}
	return n
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
