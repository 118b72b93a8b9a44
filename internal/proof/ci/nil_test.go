package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestErrorsAcceptNilPointers: each method of each exported error type begins with a check of
// its receiver. User code returns a nil pointer as an error by mistake, and fmt.Errorf wraps it
// unnoticed; a worker that asked it anything would panic.
func TestErrorsAcceptNilPointers(t *testing.T) {
	types := 0
	for _, pkg := range []string{
		"checkpoint", "rebalance", "shardlease", "shardlease/event", "shardlease/lease", "shardlease/storetest",
		"shardlease/tenuretest", "memstore", "dynamostore", "dynamostore/kcl",
	} {
		methods := methodsOf(t, filepath.Join("../../..", pkg))
		for name, all := range methods {
			if !ast.IsExported(name) || !slices.ContainsFunc(all, func(f *ast.FuncDecl) bool { return f.Name.Name == "Error" }) {
				continue
			}
			types++
			for _, f := range all {
				if !checksReceiver(f) {
					t.Errorf("%s: (*%s).%s does not begin with a check for a nil pointer", pkg, name, f.Name.Name)
				}
			}
		}
	}
	if types < 12 {
		t.Errorf("found only %d error types", types)
	}
}

// methodsOf returns the methods with pointer receivers in a folder, by type.
func methodsOf(t *testing.T, dir string) map[string][]*ast.FuncDecl {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", dir, err)
	}
	methods := map[string][]*ast.FuncDecl{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				if pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
					if of, ok := pointer.X.(*ast.Ident); ok {
						methods[of.Name] = append(methods[of.Name], f)
					}
				}
			}
		}
	}
	return methods
}

// checksReceiver reports whether f begins with if e == nil, or with return e != nil && ….
func checksReceiver(f *ast.FuncDecl) bool {
	var first ast.Expr
	switch s := f.Body.List[0].(type) {
	case *ast.IfStmt:
		first = s.Cond
	case *ast.ReturnStmt:
		first = s.Results[0]
	}
	if and, ok := first.(*ast.BinaryExpr); ok && and.Op == token.LAND {
		first = and.X
	}
	check, ok := first.(*ast.BinaryExpr)
	if !ok || len(f.Recv.List[0].Names) == 0 {
		return false
	}
	left, isName := check.X.(*ast.Ident)
	right, isNil := check.Y.(*ast.Ident)
	return isName && isNil && right.Name == "nil" && left.Name == f.Recv.List[0].Names[0].Name
}
