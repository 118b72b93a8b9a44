package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const sample = `package p
func f(a, b, c bool, n int) bool {
	switch { // of what?
	case a && (b || c):
		n = 1
	case n/2 > 3:
		g(n,
			min(n, 4))
		n++
	}
	if x := n; b { g(x); return n == 1 || n == 2 || n == x }
	return !c
}
`

func TestOperators(t *testing.T) {
	for _, c := range []struct {
		what     string
		op       operator
		old, new string // empty: there is not exactly one place
	}{
		{"never", never("n/2"), "n/2 > 3", "false && (n/2 > 3)"},
		{"always, of a result", always("!c"), "return !c", "return true || (!c)"},
		{"two conditions", never("b"), "", ""},
		{"a whole condition", never("=b"), "x := n; b", "x := n; false && (b)"},
		{"an operand of &&", without("=a"), "case a &&", "case (true || a) &&"},
		{"the innermost operand", without("=c"), "b || c", "b || (false && c)"},
		{"the outer operand", without("b", "c"), "(b || c)", "(true || (b || c))"},
		{"one of three operands", without("n == 1"), "n == 1", "(false && n == 1)"},
		{"cut", cut("n++"), "n++", ""},
		{"cut, over two lines", cut("min"), "g(n,\n\t\t\tmin(n, 4))", ""},
		{"cut at the beginning of an if", cut("x :="), "if x := n;", "if ;"},
		{"swap an expression", swap(`min(_, $limit)`, `$limit`), "min(n, 4)", "4"},
		{"the same twice", swap(`$n == 1 || $n == 2`, `$n < 3`), "n == 1 || n == 2", "n < 3"},
		{"not the same twice", swap(`$n == 1 || _ == $n`, `$n < 3`), "", ""},
		{"swap statements", swap(`$call; n++`, `n++; $call`), "g(n,\n\t\t\tmin(n, 4))\n\t\tn++", "n++; g(n,\n\t\t\tmin(n, 4))"},
		{"swap in a body", in("=b", swap(`g($x)`, `g(0)`)), "g(x)", "g(0)"},
		{"not in that body", in("=b", swap(`n++`, ``)), "", ""},
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "", sample, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		e, err := function{src: sample, start: f.FileStart, decl: f.Decls[0].(*ast.FuncDecl)}.edit(c.op)
		got := edited(sample, []edit{e})
		if want := strings.Replace(sample, c.old, c.new, 1); c.old == "" && err == nil || c.old != "" && got != want {
			t.Errorf("%s: %v\n%s", c.what, err, got)
		}
	}
}
