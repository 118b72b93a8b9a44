package otelshardlease

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// TestMessagingAttributes: with Options.System or Options.Destination every metric and every span has the attributes of
// OpenTelemetry's conventions for messaging. By default none has one.
func TestMessagingAttributes(t *testing.T) {
	for _, tc := range []struct {
		system, destination string
		want                map[string]string
	}{
		{"", "", nil},
		{"aws_kinesis", "", map[string]string{"messaging.system": "aws_kinesis", "messaging.consumer.group.name": "orders"}},
		{"aws_kinesis", "clicks", map[string]string{"messaging.system": "aws_kinesis", "messaging.destination.name": "clicks", "messaging.consumer.group.name": "orders"}},
	} {
		all := tracer{mu: new(sync.Mutex), all: map[trace.TraceID][]*span{}}
		r := everything(t, func(o *Options) { o.Traces, o.System, o.Destination = all, tc.system, tc.destination })
		for _, name := range *r.meter.order {
			n := 0
			for _, label := range r.meter.labels[name] {
				if strings.HasPrefix(label, "messaging.") {
					n++
				}
				if _, wanted := tc.want[label]; strings.HasPrefix(label, "messaging.") && !wanted {
					t.Errorf("%+v: %s has the attribute %s", tc, name, label)
				}
			}
			if n != len(tc.want) {
				t.Errorf("%+v: %s has the attributes %v", tc, name, r.meter.labels[name])
			}
		}
		spans := 0
		for _, of := range all.all {
			for _, s := range of {
				spans++
				for _, name := range []string{"messaging.system", "messaging.destination.name", "messaging.consumer.group.name"} {
					if s.labels[name] != tc.want[name] {
						t.Errorf("%+v: the span %s has the attributes %v", tc, s.name, s.labels)
					}
				}
			}
		}
		values := make([]string, 0, len(tc.want))
		for key := range r.meter.values {
			values = append(values, strings.Fields(key)...)
		}
		for name, want := range tc.want {
			if name != "messaging.consumer.group.name" && !slices.Contains(values, want) {
				t.Errorf("%+v: no metric has %s as %q", tc, name, want)
			}
		}
		if spans == 0 {
			t.Error("there are no spans")
		}
	}
}
