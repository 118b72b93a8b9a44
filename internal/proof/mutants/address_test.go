package mutants

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const root = "../../.."

// A function is a function or a method, with its file.
type function struct {
	path  string // the file's path from the root of the module
	pkg   string // the name of the package
	src   string
	start token.Pos // the start of the file
	decl  *ast.FuncDecl
}

// edit returns the edit of op. It returns an error unless there is exactly one.
func (f function) edit(op operator) (edit, error) {
	edits := op(scope{f.src, f.start, f.decl})
	if len(edits) != 1 {
		return edit{}, fmt.Errorf("has %d places for this, not one", len(edits))
	}
	if e := edits[0]; f.src[e.from:e.to] == e.text {
		return edit{}, errors.New("is not changed by this")
	}
	return edits[0], nil
}

// functions returns the functions of the package in a folder by address: the folder, then a
// dot and the type of the receiver, if there is one, then a dot and the name. Tests are
// left out.
func functions(dir string) (map[string]function, error) {
	parsed.Lock()
	defer parsed.Unlock()
	if known, ok := parsed.dirs[dir]; ok {
		return known, nil
	}
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]function{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
				all[dir+"."+nameOf(decl)] = function{filepath.Join(dir, filepath.Base(path)), file.Name.Name, string(src), file.FileStart, decl}
			}
		}
	}
	parsed.dirs[dir] = all
	return all, nil
}

var parsed = struct {
	sync.Mutex
	dirs map[string]map[string]function
}{dirs: map[string]map[string]function{}}

func nameOf(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	receiver := decl.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

// folder returns the folder of an address.
func folder(address string) string {
	slash := strings.LastIndex(address, "/") + 1
	pkg, _, _ := strings.Cut(address[slash:], ".")
	return address[:slash] + pkg
}

// candidates returns the addresses of other functions where op fits: those with the same
// name, in case the function was moved, and those in the same folder, in case it was
// renamed; if there are none, all others.
func candidates(address string, op operator) []string {
	name := address[strings.LastIndex(address, ".")+1:]
	var likely, others []string
	for _, dir := range packages() {
		all, err := functions(dir)
		if err != nil {
			continue
		}
		for at, f := range all {
			if _, err := f.edit(op); err != nil {
				continue
			}
			if f.decl.Name.Name == name || dir == folder(address) {
				likely = append(likely, at)
			} else {
				others = append(others, at)
			}
		}
	}
	if len(likely) == 0 {
		likely = others
	}
	slices.Sort(likely)
	return likely
}

// packages returns the folders of the module that have Go files.
func packages() (dirs []string) {
	seen := map[string]bool{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") {
			if dir, err := filepath.Rel(root, filepath.Dir(path)); err == nil && !seen[dir] {
				seen[dir], dirs = true, append(dirs, filepath.ToSlash(dir))
			}
		}
		return err
	})
	return dirs
}
