package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fences3"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestGuardedObjects: the register in S3 passes the suite of registers.
func TestGuardedObjects(t *testing.T) {
	storetest.RunRegister(t, func(t *testing.T) storetest.Register { return open(t, nil) })
}

// TestObjectsAreFenced: the value of a shard is never that of a stale writer.
func TestObjectsAreFenced(t *testing.T) {
	r := open(t, nil)
	fencetest.Play(t, func(*fencetest.T) fencetest.Sink {
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return r.Put(ctx, f.Shard, f.Generation, string(effect))
			},
			Effects: func(ctx context.Context, shard string) ([][]byte, error) {
				value, err := r.Get(ctx, shard)
				if value.Value == "" {
					return nil, err
				}
				return [][]byte{[]byte(value.Value)}, err
			},
			Raise: func(ctx context.Context, f fencetest.Fence) error { return r.Raise(ctx, f.Shard, f.Generation) },
			Restart: func(context.Context) error {
				r = &fences3.Register{Client: r.Client, Bucket: r.Bucket, Prefix: r.Prefix}
				return nil
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// A direct calls a server without a network, which would keep time from passing in a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	sent := r.Clone(r.Context())
	sent.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10)) // a client adds it on the wire
	d.ServeHTTP(w, sent)
	return w.Result(), nil
}

// TestLateObjectOfAnIdleShardIsRefused: the late value of an owner that was cut off is refused, although its successor has
// written none.
func TestLateObjectOfAnIdleShardIsRefused(t *testing.T) {
	zombie.Check(t, func(t *testing.T) zombie.Sink {
		r := openAt(t, "http://s3", direct{gofakes3.New(s3mem.New()).Server()})
		return zombie.Sink{Raise: r.Raise, Write: func(ctx context.Context, text string) error {
			token, _ := fence.FromContext(ctx)
			return r.Put(ctx, token.Shard, token.Generation, text)
		}}
	})
}

// faulty returns a register on which the next n puts have a fault.
func faulty(t *testing.T, fault network.Fault) (r *fences3.Register, f *network.Faulty, n *int) {
	n = new(int)
	f = network.First(n, http.MethodPut, fault)
	return open(t, f.Over), f, n
}

// TestLateObjectIsRefused: a request that arrives late changes nothing, also if the value is the same
// again as when the request was made.
func TestLateObjectIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		first  string // the value that the late request replaces; empty: it creates the object
		values []lease.Guarded
	}{
		"the holder's next":          {"a", []lease.Guarded{{Generation: 7, Value: "b"}}},
		"the same value again":       {"a", []lease.Guarded{{Generation: 7, Value: "b"}, {Generation: 7, Value: "a"}}},
		"the successor's":            {"a", []lease.Guarded{{Generation: 8, Value: "a"}}},
		"the successor's first":      {"", []lease.Guarded{{Generation: 8, Value: "b"}}},
		"a repetition of the holder": {"a", []lease.Guarded{{Generation: 7, Value: "late"}, {Generation: 7, Value: "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, f, faults := faulty(t, network.Fault{Hold: true})
			if tc.first != "" {
				if err := r.Put(t.Context(), "shard", 7, tc.first); err != nil {
					t.Fatal(err)
				}
			}
			*faults, f.Calls = 1, map[string]int{}
			if err := r.Put(t.Context(), "shard", 7, "late"); !errors.Is(err, network.ErrLost) || f.Calls[http.MethodPut] != 1 {
				t.Fatalf("%v after %v", err, f.Calls)
			}
			var want lease.Guarded
			for _, v := range tc.values {
				if err := r.Put(t.Context(), "shard", v.Generation, v.Value); err != nil {
					t.Fatal(err)
				}
				want = lease.Guarded{Name: "shard", Generation: v.Generation, Value: v.Value}
			}
			if status, err := f.Release(0); err != nil || status != http.StatusPreconditionFailed {
				t.Errorf("the late request: %d, %v", status, err)
			}
			if now, err := r.Get(t.Context(), "shard"); err != nil || now != want {
				t.Errorf("the value is %+v, %v; want %+v", now, err, want)
			}
		})
	}
}

// TestLostAnswerIsUnknown: Put reports an unknown outcome if no answer arrives, and may be repeated.
func TestLostAnswerIsUnknown(t *testing.T) {
	r, _, faults := faulty(t, network.Fault{DropReply: true})
	*faults = 1
	if err := r.Put(t.Context(), "shard", 7, "a"); !errors.Is(err, network.ErrLost) {
		t.Errorf("the first attempt: %v", err)
	}
	if err := r.Put(t.Context(), "shard", 7, "a"); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	want := lease.Guarded{Name: "shard", Generation: 7, Value: "a"}
	if now, err := r.Get(t.Context(), "shard"); err != nil || now != want {
		t.Errorf("the value is %+v, %v", now, err)
	}
}

// TestConflictIsRepeated: S3 may answer 409 while another conditional write is in progress. Nothing
// was stored then, and Put reads and compares again.
func TestConflictIsRepeated(t *testing.T) {
	answered := 0
	r := open(t, func(base http.RoundTripper) http.RoundTripper {
		return network.Func(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "" && answered == 0 {
				answered++
				const conflict = `<Error><Code>ConditionalRequestConflict</Code></Error>`
				return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(conflict)), Request: r}, nil
			}
			return base.RoundTrip(r)
		})
	})
	if err := r.Put(t.Context(), "shard", 7, "a"); err != nil || answered != 1 {
		t.Errorf("%v after %d conflicts", err, answered)
	}
}

// TestForeignObjectIsReported: an object that no register has written is neither read nor replaced.
func TestForeignObjectIsReported(t *testing.T) {
	r := open(t, nil)
	for _, content := range []string{"", "text", `{}`, `{"generation":"0","value":""}`} {
		_, err := r.Client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &r.Bucket, Key: aws.String(r.Prefix + "shard"), Body: bytes.NewReader([]byte(content)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(t.Context(), "shard"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("Get of %q: %v", content, err)
		}
		if err := r.Put(t.Context(), "shard", 7, "x"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("Put over %q: %v", content, err)
		}
	}
}
