package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// An operator finds the places in a function that it would edit. A mutant needs exactly
// one.
//
// Operators work on the syntax tree, so layout and comments do not matter. Some find a
// place by pieces of its text, without regard to case. A short piece remains right after
// most renames; if it matches two places or none, TestMutantsApply fails.
//
// They are not inlined: the lists call them nearly a thousand times, and compiled for five seconds.
type operator func(scope) []edit

// A scope is the part of a function in which an operator works.
type scope struct {
	src   string // the whole file
	start token.Pos
	node  ast.Node
}

// An edit replaces the bytes of a file from one offset to another.
type edit struct {
	from, to int
	text     string
}

// never makes a condition false that mentions all these pieces: of an if, of a for, of a
// case without a tag, or the result of a function whose only result is a bool.
//
//go:noinline
func never(mentions ...string) operator { return condition("false && (%s)", mentions) }

// always makes such a condition true.
//
//go:noinline
func always(mentions ...string) operator { return condition("true || (%s)", mentions) }

//go:noinline
func condition(format string, mentions []string) operator {
	return func(s scope) (edits []edit) {
		for _, cond := range conditions(s.node, false) {
			if text := s.text(cond.expr); mentionsAll(text, mentions) {
				edits = append(edits, s.edit(cond.expr, fmt.Sprintf(format, text)))
			}
		}
		return edits
	}
}

// without drops one operand of && or ||: the innermost that mentions all these pieces.
//
//go:noinline
func without(mentions ...string) operator {
	return func(s scope) (edits []edit) {
		ast.Inspect(s.node, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if !ok || b.Op != token.LAND && b.Op != token.LOR {
				return true
			}
			format := "(true || %s)"
			if b.Op == token.LOR {
				format = "(false && %s)"
			}
			for _, operand := range []ast.Expr{b.X, b.Y} {
				if c, ok := operand.(*ast.BinaryExpr); ok && c.Op == b.Op {
					continue // an expression around the operands
				}
				if text := s.text(operand); mentionsAll(text, mentions) {
					edits = append(edits, s.edit(operand, fmt.Sprintf(format, text)))
				}
			}
			return true
		})
		return innermost(edits)
	}
}

// cut deletes the simple statement that mentions all these pieces.
//
//go:noinline
func cut(mentions ...string) operator {
	return func(s scope) (edits []edit) {
		ast.Inspect(s.node, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.ExprStmt, *ast.AssignStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
				if mentionsAll(s.text(n), mentions) {
					edits = append(edits, s.edit(n, ""))
				}
			}
			return true
		})
		return innermost(edits)
	}
}

// in limits an operator to the body of the if, for or case whose condition mentions this
// piece. A piece that begins with = is the whole condition.
//
//go:noinline
func in(mention string, op operator) operator {
	return func(s scope) (edits []edit) {
		for _, cond := range conditions(s.node, true) {
			if mentionsAll(s.text(cond.expr), []string{mention}) {
				edits = append(edits, op(scope{s.src, s.start, cond.body})...)
			}
		}
		return edits
	}
}

// swap replaces an expression, or consecutive statements, by others. In the pattern, _ and
// $x match anything; the replacement can use $x.
//
//go:noinline
func swap(pattern, replacement string) operator {
	want := parsePattern(pattern)
	return func(s scope) (edits []edit) {
		add := func(from, to ast.Node, bound map[string]string) {
			text := metavariable.ReplaceAllStringFunc(replacement, func(name string) string { return bound[name[1:]] })
			edits = append(edits, edit{s.offset(from.Pos()), s.offset(to.End()), text})
		}
		ast.Inspect(s.node, func(n ast.Node) bool {
			if expr, ok := n.(ast.Expr); ok && want.expr != nil {
				if m := (matcher{s, map[string]string{}}); m.match(want.expr, expr) {
					add(expr, expr, m.bound)
				}
			}
			for list := statements(n); len(want.stmts) > 0 && len(list) >= len(want.stmts); list = list[1:] {
				here := list[:len(want.stmts)]
				if m := (matcher{s, map[string]string{}}); m.match(want.stmts, here) {
					add(here[0], here[len(here)-1], m.bound)
				}
			}
			return true
		})
		return edits
	}
}

// A bodied is a condition with the body that it guards.
type bodied struct {
	expr ast.Expr
	body ast.Node
}

// conditions returns the conditions below n; if withBody is set, only those with a body.
func conditions(n ast.Node, withBody bool) (found []bodied) {
	var inspect func(n ast.Node, predicate bool)
	inspect = func(n ast.Node, predicate bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				inspect(n.Body, returnsBool(n.Type))
				return false
			case *ast.FuncLit:
				inspect(n.Body, returnsBool(n.Type))
				return false
			case *ast.IfStmt:
				found = append(found, bodied{n.Cond, n.Body})
			case *ast.ForStmt:
				if n.Cond != nil {
					found = append(found, bodied{n.Cond, n.Body})
				}
			case *ast.SwitchStmt:
				found = append(found, cases(n)...)
			case *ast.ReturnStmt:
				if predicate && !withBody && len(n.Results) == 1 {
					found = append(found, bodied{n.Results[0], nil})
				}
			}
			return true
		})
	}
	inspect(n, false)
	return found
}

func cases(s *ast.SwitchStmt) (found []bodied) {
	for _, stmt := range s.Body.List {
		if clause := stmt.(*ast.CaseClause); s.Tag == nil {
			for _, expr := range clause.List {
				found = append(found, bodied{expr, &ast.BlockStmt{List: clause.Body}})
			}
		}
	}
	return found
}

func returnsBool(f *ast.FuncType) bool {
	if f.Results.NumFields() != 1 {
		return false
	}
	id, ok := f.Results.List[0].Type.(*ast.Ident)
	return ok && id.Name == "bool"
}

func (s scope) offset(p token.Pos) int { return int(p - s.start) }

// text returns the source of n on one line.
func (s scope) text(n ast.Node) string {
	return strings.Join(strings.Fields(s.raw(n)), " ")
}

func (s scope) raw(n ast.Node) string { return s.src[s.offset(n.Pos()):s.offset(n.End())] }

func (s scope) edit(n ast.Node, text string) edit {
	return edit{s.offset(n.Pos()), s.offset(n.End()), text}
}

func mentionsAll(text string, mentions []string) bool {
	return !slices.ContainsFunc(mentions, func(m string) bool {
		if whole, ok := strings.CutPrefix(m, "="); ok {
			return text != whole
		}
		return !strings.Contains(strings.ToLower(text), strings.ToLower(m))
	})
}

// innermost drops the edits that contain other edits.
func innermost(edits []edit) []edit {
	return slices.DeleteFunc(slices.Clone(edits), func(e edit) bool {
		return slices.ContainsFunc(edits, func(other edit) bool {
			return other != e && e.from <= other.from && other.to <= e.to
		})
	})
}

func statements(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// metavariable matches a $x in a pattern. Go's parser gets an identifier instead of it.
var metavariable = regexp.MustCompile(`\$[a-z]+`)

const metaPrefix = "metavariable_"

// A pattern is an expression, or else consecutive statements.
type pattern struct {
	expr  ast.Expr
	stmts []ast.Stmt
}

func parsePattern(text string) pattern {
	text = metavariable.ReplaceAllStringFunc(text, func(name string) string { return metaPrefix + name[1:] })
	if expr, err := parser.ParseExpr(text); err == nil {
		return pattern{expr: expr}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+text+"\n}", parser.SkipObjectResolution)
	if err != nil {
		panic(fmt.Sprintf("pattern %s: %v", text, err))
	}
	return pattern{stmts: f.Decls[0].(*ast.FuncDecl).Body.List}
}

// A matcher compares a pattern with source, and records what its metavariables match.
type matcher struct {
	scope
	bound map[string]string
}

func (m matcher) match(pattern, source any) bool {
	return m.same(reflect.ValueOf(pattern), reflect.ValueOf(source))
}

var posType = reflect.TypeFor[token.Pos]()

func (m matcher) same(p, s reflect.Value) bool {
	if p.Kind() == reflect.Interface {
		p = p.Elem()
	}
	if s.Kind() == reflect.Interface {
		s = s.Elem()
	}
	if !p.IsValid() || !s.IsValid() { // nil
		return p.IsValid() == s.IsValid()
	}
	if is, fits := m.anything(p, s); is {
		return fits
	}
	if p.Type() != s.Type() {
		return false
	}
	switch p.Kind() {
	case reflect.Pointer:
		return m.same(p.Elem(), s.Elem())
	case reflect.Slice:
		same := p.Len() == s.Len()
		for i := 0; same && i < p.Len(); i++ {
			same = m.same(p.Index(i), s.Index(i))
		}
		return same
	case reflect.Struct:
		same := true
		for i := 0; same && i < p.NumField(); i++ {
			same = p.Field(i).Type() == posType || m.same(p.Field(i), s.Field(i))
		}
		return same
	}
	return p.Equal(s)
}

// anything reports whether p matches anything, alone or as a whole statement, and whether s
// is something that it can match.
func (m matcher) anything(p, s reflect.Value) (is, fits bool) {
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return false, false
	}
	node := p.Interface()
	if stmt, ok := node.(*ast.ExprStmt); ok {
		node = stmt.X
	}
	id, ok := node.(*ast.Ident)
	if !ok {
		return false, false
	}
	name, bind := strings.CutPrefix(id.Name, metaPrefix)
	if !bind && id.Name != "_" {
		return false, false
	}
	n, ok := s.Interface().(ast.Node)
	if !ok || s.IsNil() || !bind {
		return true, ok && !s.IsNil()
	}
	before, known := m.bound[name]
	m.bound[name] = m.raw(n)
	return true, !known || before == m.bound[name]
}
