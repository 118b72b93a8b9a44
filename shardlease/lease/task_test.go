package lease_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func TestOwnerServesATask(t *testing.T) {
	for _, c := range []struct {
		of, task string
		serves   bool
	}{
		{"deploy", "deploy", true},
		{"deploy/eu/db", "deploy", true},
		{"deploy/eu/db", "deploy/eu", true},
		{"deploy/eu/db", "deploy/eu/db", true},
		{"deploy", "deploy/eu", false},
		{"deployment", "deploy", false},
		{"deploy", "deploy/", false},
		{"deploy/eu", "deploy/", false},
		{"", "", true},
		{"deploy", "", false},
		{"", "deploy", false},
	} {
		if got := (lease.Owner{Name: "a", Incarnation: "a1", Task: c.of}).Serves(c.task); got != c.serves {
			t.Errorf("an owner with task %q serves %q: %v", c.of, c.task, got)
		}
	}
	if (lease.Owner{}).Serves("") {
		t.Error("nobody serves the empty task")
	}
}

// TestTasksHaveNoEmptyParts: an owner or a seat whose task has an empty part cannot be stored.
func TestTasksHaveNoEmptyParts(t *testing.T) {
	for task, valid := range map[string]bool{
		"": true, "run 1": true, "deploy/eu/db": true, strings.Repeat("x", lease.MaxName): true,
		"/": false, "deploy/": false, "/deploy": false, "deploy//db": false, "deploy\n": false, strings.Repeat("x", lease.MaxName+1): false,
	} {
		owner := lease.Owner{Name: "a", Incarnation: "a1", Task: task}
		seat := lease.Seat{Group: "g", Incarnation: "a1", WriteID: "w", Name: "a", Task: task, TTL: 1e9}
		for what, err := range map[string]error{"owner": owner.Validate(), "seat": seat.Validate()} {
			if (err == nil) != valid || err != nil && !errors.Is(err, checkpoint.ErrInvalid) {
				t.Errorf("%s with task %.20q: %v", what, task, err)
			}
		}
	}
}
