package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A size is the size of a package. Of tests only the lines count; generated files do not
// count.
type size struct {
	exported  []string // top-level names: types, functions, constants and variables, without methods
	code      int      // lines with code
	comments  int      // lines with nothing except a comment
	tests     int      // lines of test files
	functions []length // the longest function first
}

type length struct {
	name  string
	lines int
}

// measure prints the sizes of packages. The patterns are those of go list.
func measure(out io.Writer, patterns []string) error {
	list, err := exec.Command("go", append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, patterns...)...).Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		s, err := sizeOf(dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n\t%v\n", pkg, s)
	}
	return nil
}

func (s size) String() string {
	text := fmt.Sprintf("%d exported names; %d lines of code, %d of comments (%.2f), %d of tests",
		len(s.exported), s.code, s.comments, float64(s.comments)/float64(max(s.code, 1)), s.tests)
	if len(s.functions) == 0 {
		return text
	}
	text += fmt.Sprintf("; %d functions, half of them up to %d lines, the longest:", len(s.functions), s.functions[len(s.functions)/2].lines)
	for _, f := range s.functions[:min(4, len(s.functions))] {
		text += fmt.Sprintf(" %s %d", f.name, f.lines)
	}
	return text
}

// sizeOf returns the size of the package in a folder.
func sizeOf(dir string) (s size, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return s, err
	}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			return s, err
		}
		if strings.HasSuffix(path, "_test.go") {
			s.tests += strings.Count(string(src), "\n")
		} else if err := s.add(src); err != nil {
			return s, err
		}
	}
	slices.Sort(s.exported)
	slices.SortStableFunc(s.functions, func(a, b length) int { return cmp.Compare(b.lines, a.lines) })
	return s, nil
}

// add adds one file.
func (s *size) add(src []byte) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return err
	}
	code, comments := lines(src)
	s.code, s.comments = s.code+code, s.comments+comments
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv == nil {
				s.export(d.Name)
			} else {
				receiver := d.Recv.List[0].Type
				name = strings.TrimLeft(string(src[set.Position(receiver.Pos()).Offset:set.Position(receiver.End()).Offset]), "*") + "." + name
			}
			s.functions = append(s.functions, length{name, set.Position(d.End()).Line - set.Position(d.Pos()).Line + 1})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					s.export(spec.Name)
				case *ast.ValueSpec:
					s.export(spec.Names...)
				}
			}
		}
	}
	return nil
}

func (s *size) export(names ...*ast.Ident) {
	for _, name := range names {
		if name.IsExported() {
			s.exported = append(s.exported, name.Name)
		}
	}
}

// lines counts the lines with code, and those with nothing except a comment.
func lines(src []byte) (code, comments int) {
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
