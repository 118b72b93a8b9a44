package lease

import "strings"

// Serves reports whether the task of o is the given task or one of its descendants. A descendant is a task
// whose name begins with the name of the given task and a slash. Only an owner without a task serves the
// empty task.
func (o Owner) Serves(task string) bool {
	rest, ok := strings.CutPrefix(o.Task, task)
	return ok && !o.IsZero() && (rest == "" || task != "" && rest[0] == '/')
}

// validTask reports why a task cannot be stored. A task has no empty parts. Otherwise names that look like
// one task would be two tasks, such as "deploy" and "deploy/".
func validTask(task string) error {
	if task == "" {
		return nil
	}
	if task[0] == '/' || task[len(task)-1] == '/' || strings.Contains(task, "//") {
		return invalid("task", "must not begin or end with a slash, or have two slashes in a row")
	}
	return validText("task", task, MaxName)
}
