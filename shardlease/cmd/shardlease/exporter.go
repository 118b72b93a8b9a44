package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

func (o *observer) exporterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "exporter", Short: "Serves the figures of the group to Prometheus", Args: arguments,
		Long: `Watches the group, and serves its figures at /metrics in the text format of Prometheus, and at /figures.json for
programs such as KEDA, until it is interrupted. Watching costs about as much as one more worker, however often the
pages are read. Workers need no change. docs/metrics.md describes the figures; check -o prometheus prints the same
ones once.

If a look at the table fails, or the group does not exist, shardlease_check_status is 3 until a look succeeds, and the
other figures are left out. No figure has the name of a shard or a worker. The exporter has no authentication: by
default only this machine can reach it.`,
		Example: "  shardlease exporter\n  shardlease exporter --listen :9464",
	}
	listen := c.Flags().String("listen", "127.0.0.1:9464", "the `ADDRESS` at which to serve")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		from, err := o.open(ctx)
		if err != nil {
			return err
		}
		at, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.problems, "shardlease: serves group %s at http://%s/metrics\n", quoted(o.at.group), at.Addr())
		return o.export(ctx, from, at)
	})
	return c
}

// export serves the figures of the group until ctx ends, which is no error.
func (o *observer) export(ctx context.Context, from inspect.Lister, at net.Listener) error {
	watched, stop := context.WithCancelCause(ctx)
	pages := newPages()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", pages.text)
	mux.Handle("GET /figures.json", pages.json)
	server := &http.Server{Handler: mux, ReadTimeout: callTimeout, WriteTimeout: callTimeout, IdleTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		stop(server.Serve(at))
	}()
	o.renew(watched, from, pages)
	_ = server.Close()
	<-served
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watched)
}

// renew watches the group, and renews the pages after each look.
func (o *observer) renew(ctx context.Context, from inspect.Lister, pages exporterPages) {
	var failing error
	for s, err := range inspect.Watch(ctx, from, o.at.group, inspect.WatchOptions{Options: inspect.Options{Now: o.now, Ends: time.Hour}}) {
		if err == nil {
			s, err = o.existing(s)
		}
		o.tellFailing(&failing, err)
		figures := inspect.Figures(o.at.group, s)
		pages.json.body.Store(new(figuresJSON(o.at.group, figures)))
		pages.text.body.Store(new(metricsText(figures)))
	}
}

// ExporterPages have the figures of the last look.
type exporterPages struct{ text, json *figuresPage }

func newPages() exporterPages {
	return exporterPages{text: &figuresPage{kind: "text/plain; version=0.0.4; charset=utf-8"}, json: &figuresPage{kind: "application/json"}}
}

// A figuresPage has the figures of the last look in one format.
type figuresPage struct {
	kind string
	body atomic.Pointer[string] // nil: there was no look yet
}

func (p *figuresPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text := p.body.Load()
	if text == nil {
		http.Error(w, "the first look at the table has not ended", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", p.kind)
	_, _ = io.WriteString(w, *text)
}

// metricsText returns figures in the text format of Prometheus, by the names that an exporter of OpenTelemetry uses.
func metricsText(figures []inspect.Figure) string {
	var b strings.Builder
	last := ""
	for _, f := range figures {
		name := metricName(f)
		if name != last {
			kind := "gauge"
			if f.Total {
				kind = "counter"
			}
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, f.Help, name, kind)
		}
		last = name
		labels := make([]string, 0, len(f.Labels))
		for _, l := range f.Labels {
			labels = append(labels, l[0]+"="+label(l[1]))
		}
		fmt.Fprintf(&b, "%s{%s} %s\n", name, strings.Join(labels, ","), strconv.FormatFloat(f.Value, 'g', -1, 64))
	}
	return b.String()
}

// figuresJSON returns figures as a JSON object, by the names that they have in Prometheus: a number, or an object by the values
// of the labels, such as {"shardlease_shards": {"held": 12, …}, …}. All figures have the group, which is in the head.
func figuresJSON(group string, figures []inspect.Figure) string {
	all := object{{"group", group}}
	for _, f := range figures {
		path := []string{metricName(f)}
		for _, l := range f.Labels[1:] {
			path = append(path, l[1])
		}
		all = all.with(f.Value, path)
	}
	text, err := versioned("figures", all)
	if err != nil {
		return "{}" // a number that JSON does not know, which no figure is
	}
	return string(text) + "\n"
}

// with returns o with a value at the end of a path of names. Values of one path stand side by side.
func (o object) with(value any, path []string) object {
	if len(path) == 1 {
		return append(o, entry{path[0], value})
	}
	last := len(o) - 1
	if last < 0 || o[last].name != path[0] {
		return append(o, entry{path[0], object(nil).with(value, path[1:])})
	}
	below, _ := o[last].value.(object)
	o[last].value = below.with(value, path[1:])
	return o
}

// metricName returns the name of a figure in Prometheus.
func metricName(f inspect.Figure) string {
	name := strings.ReplaceAll(f.Name, ".", "_")
	if f.Unit == "s" {
		name += "_seconds"
	}
	if f.Total {
		name += "_total"
	}
	return name
}

// label returns a value of a Prometheus label.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(clean(s)) + `"`
}
