package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// A census has the sizes of all source and all pages. Generated files do not count.
type census struct {
	counts  map[thing]int
	folders map[string]size
	seen    map[string]bool // declarations
}

// A size is how much a folder has.
type size struct {
	code     int // lines with code, outside of tests
	comments int // lines with nothing except a comment, outside of tests
	tests    int // lines of tests with code
	words    int // of pages
}

// countAll counts the files of a repository.
func countAll(files fs.FS) (*census, error) {
	c := &census{map[thing]int{}, map[string]size{}, map[string]bool{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".go" {
			return c.addSource(name, text)
		}
		c.addPage(name, text)
		return nil
	})
	return c, err
}

func (c *census) addPage(name string, text []byte) {
	n := len(bytes.Fields(text))
	c.counts[thing{words, name}] = n
	c.counts[thing{pageSize, name}] = bytes.Count(text, []byte("\n"))
	s := c.folders[path.Dir(name)]
	s.words += n
	c.folders[path.Dir(name)] = s
}

func (c *census) addSource(name string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	c.counts[thing{fileSize, name}] = bytes.Count(text, []byte("\n"))
	isTest := strings.HasSuffix(name, "_test.go")
	s := c.folders[path.Dir(name)]
	if code, comments := linesOf(text); isTest {
		s.tests += code
	} else {
		s.code, s.comments = s.code+code, s.comments+comments
	}
	c.folders[path.Dir(name)] = s

	pkg := path.Dir(name)
	if strings.HasSuffix(file.Name.Name, "_test") {
		pkg += "_test"
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			c.addFunction(pkg, f, lengthOf(set, f))
		}
		if !isTest {
			c.addNames(pkg, d)
		}
	}
	return nil
}

func (c *census) addFunction(pkg string, f *ast.FuncDecl, lines int) {
	name := pkg + "." + f.Name.Name
	if f.Recv != nil {
		of := pkg + "." + receiver(f.Recv.List[0].Type)
		name = of + "." + f.Name.Name
		c.addOnce(thing{methods, of}, name)
	}
	at := thing{length, name}
	c.counts[at] = max(c.counts[at], lines)
}

// addNames adds the exported names of a declaration. A method is none of the package.
func (c *census) addNames(pkg string, d ast.Decl) {
	var names []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name)
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			}
		}
	}
	for _, name := range names {
		if name.IsExported() {
			c.addOnce(thing{surface, pkg}, pkg+"."+name.Name)
		}
	}
}

// addOnce adds a declaration to a count, unless it is there: it may exist for each operating system.
func (c *census) addOnce(to thing, declared string) {
	if !c.seen[declared] {
		c.seen[declared] = true
		c.counts[to]++
	}
}

// receiver returns the name of the type of a receiver.
func receiver(of ast.Expr) string {
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.IndexListExpr:
			of = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// lengthOf returns the lines of a function without those inside composite literals, so that a table of cases may be
// long. A function literal in such a table is a function too: the longest counts.
func lengthOf(set *token.FileSet, f *ast.FuncDecl) (longest int) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			longest = max(longest, linesOutside(set, n))
		}
		return true
	})
	return longest
}

// linesOutside returns the lines of a node that are not inside a composite literal below it.
func linesOutside(set *token.FileSet, of ast.Node) (n int) {
	line := func(p token.Pos) int { return set.Position(p).Line }
	inside := map[int]bool{}
	ast.Inspect(of, func(n ast.Node) bool {
		if data, ok := n.(*ast.CompositeLit); ok {
			for at := line(data.Lbrace) + 1; at < line(data.Rbrace); at++ {
				inside[at] = true
			}
		}
		return true
	})
	for at := line(of.Pos()); at <= line(of.End()); at++ {
		if !inside[at] {
			n++
		}
	}
	return n
}

// linesOf counts the lines with code, and those with nothing except a comment.
func linesOf(src []byte) (code, comments int) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	kinds := map[int]token.Token{} // by line: COMMENT, or ILLEGAL for code
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // a semicolon that the scanner inserted
		}
		from := file.Line(pos)
		for line := from; line <= from+strings.Count(text, "\n"); line++ {
			if tok != token.COMMENT {
				kinds[line] = token.ILLEGAL
			} else if _, known := kinds[line]; !known {
				kinds[line] = token.COMMENT
			}
		}
	}
	for _, kind := range kinds {
		if kind == token.COMMENT {
			comments++
		} else {
			code++
		}
	}
	return code, comments
}
