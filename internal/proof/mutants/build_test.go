package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variable is the environment variable with the number of the mutant that a test program runs.
// Without it, the code is unharmed.
const variable = "SHARDLEASE_MUTANT"

// programs are the test programs of the packages, by package. Each contains all mutants: to
// compile them one by one would take most of the time.
type programs map[string]string

// build compiles the tests of all mutants.
func build(t *testing.T, all []mutant) programs {
	t.Helper()
	replace := map[string]string{}
	dir := t.TempDir()
	for file, text := range mutated(t, all) {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	built := programs{}
	args := []string{"test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", dir + "/"}
	for _, m := range all {
		if built[m.pkg] == "" {
			built[m.pkg] = filepath.Join(dir, path.Base(m.pkg)+".test")
			args = append(args, m.pkg)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutants do not compile: %v\n%s", err, out)
	}
	return built
}

// mutated returns the text of each file that the mutants change or add. A mutant is a copy of its function with the edit,
// and the function calls the copy if the variable has the mutant's number.
func mutated(t *testing.T, all []mutant) map[string]string {
	t.Helper()
	texts := map[string]string{}
	edits := map[string][]edit{} // of each file that has a mutant
	sources := map[string]function{}
	numbers := map[string][]int{} // of the mutants, by function
	for i, m := range all {
		f, e := m.edit(t)
		sources[f.path] = f
		numbers[m.at] = append(numbers[m.at], i+1)
		edits[f.path] = append(edits[f.path], edit{len(f.src), len(f.src), f.copy(i+1, e)})
	}
	for at, of := range numbers {
		f, _ := all[of[0]-1].edit(t)
		edits[f.path] = append(edits[f.path], f.choose(of)...)
		texts[folder(at)+"/mutant_number.go"] = fmt.Sprintf(
			"package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantNumber, _ = strconv.Atoi(os.Getenv(%q))\n", f.pkg, variable)
	}
	for file, of := range edits {
		texts[file] = edited(sources[file].src, of)
	}
	return texts
}

// run runs tests of a package, as samples or at full size. The code has the mutant of that number; for the number 0 it is
// unharmed. The tests stop after the first failure.
func (p programs) run(pkg, tests string, number int, long bool, limit time.Duration) (string, error) {
	cmd := exec.Command(p[pkg], "-test.v", "-test.failfast", "-test.timeout="+limit.String(),
		"-test.run", "^("+strings.ReplaceAll(tests, "/", ")$/^(")+")$")
	cmd.Dir = filepath.Join(root, pkg)
	cmd.Env = append(os.Environ(), "SHARDLEASE_LONG=", variable+"="+strconv.Itoa(number))
	if long {
		cmd.Env = append(cmd.Env, "SHARDLEASE_LONG=1")
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// edited returns the text with all these edits, which do not overlap.
func edited(text string, edits []edit) string {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.WriteString(text[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	return out.String() + text[at:]
}

// copied separates the name of a function from the number of the mutant, in the name of the copy.
const copied = "Mutant"

func (f function) copyName(number int) string { return fmt.Sprint(f.decl.Name.Name, copied, number) }

// copy returns the text of the function with one edit, under the copy's name.
func (f function) copy(number int, e edit) string {
	s := scope{f.src, f.start, f.decl}
	from, to := s.offset(f.decl.Pos()), s.offset(f.decl.End())
	text := edited(f.src[:to], []edit{s.edit(f.decl.Name, f.copyName(number)), e})
	return "\n\n" + text[from:]
}

// choose returns the edits that make the function call one of its copies. Parameters without a
// name get one.
func (f function) choose(numbers []int) (edits []edit) {
	s := scope{f.src, f.start, f.decl}
	unnamed := 0
	name := func(fields *ast.FieldList) (names []string) {
		if fields == nil {
			return nil
		}
		for _, field := range fields.List {
			fresh := func() string { unnamed++; return fmt.Sprint("unnamed", unnamed) }
			if len(field.Names) == 0 {
				names = append(names, fresh())
				at := s.offset(field.Type.Pos())
				edits = append(edits, edit{at, at, names[len(names)-1] + " "})
			}
			for _, n := range field.Names {
				names = append(names, n.Name)
				if n.Name == "_" {
					names[len(names)-1] = fresh()
					edits = append(edits, s.edit(n, names[len(names)-1]))
				}
			}
		}
		return names
	}
	receiver := ""
	if names := name(f.decl.Recv); names != nil {
		receiver = names[0] + "."
	}
	args := strings.Join(name(f.decl.Type.Params), ", ")
	if list := f.decl.Type.Params.List; len(list) > 0 {
		if _, variadic := list[len(list)-1].Type.(*ast.Ellipsis); variadic {
			args += "..."
		}
	}
	types := ""
	if names := name(f.decl.Type.TypeParams); names != nil {
		types = "[" + strings.Join(names, ", ") + "]"
	}
	var cases strings.Builder
	for _, number := range numbers {
		call := receiver + f.copyName(number) + types + "(" + args + ")"
		if f.decl.Type.Results == nil {
			fmt.Fprintf(&cases, "case %d: %s; return; ", number, call)
		} else {
			fmt.Fprintf(&cases, "case %d: return %s; ", number, call)
		}
	}
	body := s.offset(f.decl.Body.Lbrace) + 1
	return append(edits, edit{body, body, " switch mutantNumber { " + cases.String() + "}; "})
}
