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
	"testing"
)

// A checker type-checks a package with one of its files replaced, which takes milliseconds
// where go build takes a second.
type checker struct {
	set      *token.FileSet
	packages map[string]listed // the packages of the module, by folder
	imports  types.Importer
}

// listed is the description of a package by go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	files                   map[string]*ast.File
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
	c := &checker{set: token.NewFileSet(), packages: map[string]listed{}}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		p := listed{files: map[string]*ast.File{}}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			c.parse(t, p)
		}
	}
	c.imports = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(root, dir))
	return err == nil
}

func (c *checker) parse(t *testing.T, p listed) {
	t.Helper()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files[name] = f
	}
	c.packages[p.Dir] = p
}

// file returns an error if the package of that file does not compile with this text instead
// of the file.
func (c *checker) file(path, text string) error {
	mutated, err := parser.ParseFile(c.set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(filepath.Join(root, filepath.Dir(path)))
	if err != nil {
		return err
	}
	p := c.packages[dir]
	files := []*ast.File{mutated}
	for name, f := range p.files {
		if name != filepath.Base(path) {
			files = append(files, f)
		}
	}
	_, err = (&types.Config{Importer: c.imports}).Check(p.ImportPath, c.set, files, nil)
	return err
}
