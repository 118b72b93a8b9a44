package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

const heartbeat = 5 * time.Second // of an idle shard

const shard0 = "shardId-000000000000"

var oldest = types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}

// A world is a stream with one shard, a registered consumer, and its reader.
type world struct {
	*testing.T
	*Reader
	server *kinesistest.Server
	orders *kinesistest.Stream
	asked  int   // how often Read has asked whether the worker holds the shard
	lost   error // what it is answered
}

// bubble runs a test. Its end proves that no goroutine stays.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: kinesistest.New()}
		w.server.Limits = true
		w.orders = w.server.Create("orders", 1)
		w.Reader = &Reader{Client: Client(w.server.Client()), Counters: new(Counters)}
		var err error
		if w.Consumer, err = Register(t.Context(), w.Client, w.orders.ARN(), "group"); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

func (w *world) holds(context.Context) error {
	w.asked++
	return w.lost
}

// read reads the shard for a time, or until its end, and returns the data of the records.
func (w *world) read(most time.Duration) (got []string, end bool, err error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), most)
	defer cancel()
	for a, err := range w.Read(ctx, shard0, oldest, w.holds) {
		if err != nil {
			w.closed()
			return got, false, err
		}
		for _, r := range a.Records {
			got = append(got, string(r.Data))
		}
		end = a.End
	}
	w.closed()
	return got, end, nil
}

// closed checks that Read leaves no subscription behind.
func (w *world) closed() {
	w.Helper()
	if n := w.orders.Subscriptions(shard0); n != 0 {
		w.Errorf("%d subscriptions are open after Read", n)
	}
}

// every puts a record every d, n times.
func (w *world) every(d time.Duration, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
		time.AfterFunc(time.Duration(i)*d, func() { w.orders.Put("k", fmt.Append(nil, i)) })
	}
	return all
}

// counted checks the counters: subscriptions, silences, take-overs, torn.
func (w *world) counted(want ...int64) {
	w.Helper()
	c := w.Counters
	got := []int64{c.Subscriptions.Load(), c.Silent.Load(), c.TakeOvers.Load(), c.Broken.Load()}
	if !slices.Equal(got, want) {
		w.Errorf("subscriptions, silences, take-overs, torn: %v, want %v", got, want)
	}
}

// calls returns the times between the calls of SubscribeToShard.
func (w *world) calls() (gaps []time.Duration) {
	all := w.server.Calls("SubscribeToShard")
	for i := 1; i < len(all); i++ {
		gaps = append(gaps, all[i].At.Sub(all[i-1].At))
	}
	return gaps
}

// TestEndOfShard: a shard ends with an answer that names its children. Over an hour of
// subscriptions of 5 minutes each, every record arrives once, and nobody else is asked.
func TestEndOfShard(t *testing.T) {
	bubble(t, func(w *world) {
		want := w.every(10*time.Second, 360)
		time.AfterFunc(time.Hour-time.Second, func() { w.orders.Split(shard0) })
		got, end, err := w.read(2 * time.Hour)
		if !slices.Equal(got, want) || !end || err != nil {
			w.Errorf("%d records, the end: %v, %v", len(got), end, err)
		}
		w.counted(12, 0, 0, 0)
		if w.asked != 0 {
			w.Errorf("asked %d times for the shard", w.asked)
		}
	})
}

// TestBrokenSubscriptions: after each way in which a subscription breaks, the shard is subscribed to
// again at its place: no record is lost or comes twice, and none of them is the end of the shard.
func TestBrokenSubscriptions(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		count []int64
	}{
		"ended":             {io.EOF, []int64{3, 0, 0, 1}},
		"torn in a frame":   {kinesistest.ErrTorn, []int64{3, 0, 0, 1}},
		"silent":            {kinesistest.ErrSilence, []int64{3, 1, 0, 0}},
		"exception":         {&types.InternalFailureException{Message: new("oops")}, []int64{3, 0, 0, 0}},
		"throttled":         {&types.KMSThrottlingException{Message: new("slower")}, []int64{3, 0, 0, 0}},
		"taken over":        {&types.ResourceInUseException{Message: new("taken")}, []int64{3, 0, 1, 0}},
		"connection is cut": {errors.New("reset"), []int64{3, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				want := w.every(time.Second, 100)
				time.AfterFunc(50500*time.Millisecond, func() {
					w.orders.Break(shard0, c.fault)
				})
				time.AfterFunc(7*time.Minute, func() { w.orders.Split(shard0) })
				got, end, err := w.read(time.Hour)
				if !slices.Equal(got, want) || !end || err != nil {
					w.Errorf("%d records, the end: %v, %v", len(got), end, err)
				}
				w.counted(c.count...)
				if w.asked != 1 {
					w.Errorf("asked %d times for the shard", w.asked)
				}
			})
		})
	}
}

// TestRefusedSubscriptions: a SubscribeToShard that fails is called again, at a pace that Kinesis
// allows, and without retries of the SDK.
func TestRefusedSubscriptions(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		count []int64
		least time.Duration // between two calls
	}{
		"busy":                   {&types.ResourceInUseException{Message: new("busy")}, []int64{1, 0, 8, 0}, 5 * time.Second},
		"too fast":               {&types.LimitExceededException{Message: new("slower")}, []int64{1, 0, 0, 0}, time.Second},
		"fault of the service":   {&types.InternalFailureException{Message: new("oops")}, []int64{1, 0, 0, 0}, time.Second},
		"no connection":          {io.ErrUnexpectedEOF, []int64{1, 0, 0, 0}, time.Second},
		"torn in the response":   {kinesistest.ErrTorn, []int64{1, 0, 0, 0}, time.Second},
		"withheld":               {kinesistest.ErrSilence, []int64{1, 8, 0, 0}, 20 * time.Second},
		"exception comes first":  {kinesistest.FirstFrame(&types.InternalFailureException{Message: new("oops")}), []int64{1, 0, 0, 0}, time.Second},
		"final, but comes first": {kinesistest.FirstFrame(&types.AccessDeniedException{Message: new("no")}), []int64{1, 0, 0, 0}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.orders.Put("k", []byte("0"))
				w.orders.Split(shard0)
				w.server.Fail("SubscribeToShard", c.fault, 8)
				got, end, err := w.read(time.Hour)
				if !slices.Equal(got, []string{"0"}) || !end || err != nil {
					w.Errorf("%q, the end: %v, %v", got, end, err)
				}
				w.counted(c.count...)
				gaps := w.calls()
				if least, most := slices.Min(gaps), slices.Max(gaps); len(gaps) != 8 || least < c.least || most > c.least+10*time.Second {
					w.Errorf("the pauses are %v", gaps)
				}
			})
		})
	}
}

// TestFinalErrors: an error that would come again ends the reading, with its type.
func TestFinalErrors(t *testing.T) {
	denied := &types.AccessDeniedException{Message: new("no")}
	disabled := &types.KMSDisabledException{Message: new("off")}
	for name, c := range map[string]struct {
		fail func(w *world)
		want func(error) bool
	}{
		"forbidden":            {func(w *world) { w.server.Fail("SubscribeToShard", denied, -1) }, is[*types.AccessDeniedException]},
		"no shard":             {func(w *world) { w.orders.Forget(shard0) }, is[*types.ResourceNotFoundException]},
		"no shard any more":    {func(w *world) { time.AfterFunc(time.Minute, func() { w.orders.Forget(shard0) }) }, is[*types.ResourceNotFoundException]},
		"no stream any more":   {func(w *world) { time.AfterFunc(time.Minute, w.orders.Delete) }, is[*types.ResourceNotFoundException]},
		"no key any more":      {func(w *world) { time.AfterFunc(time.Minute, func() { w.orders.Break(shard0, disabled) }) }, is[*types.KMSDisabledException]},
		"the consumer is gone": {func(w *world) { time.AfterFunc(time.Minute, w.deregister) }, is[*types.ResourceNotFoundException]},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c.fail(w)
				if _, end, err := w.read(time.Hour); !c.want(err) || end {
					w.Errorf("the end: %v, %v", end, err)
				}
			})
		})
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func (w *world) deregister() {
	if err := Deregister(w.Context(), w.Client, w.orders.ARN(), "group"); err != nil {
		w.Error(err)
	}
}

// TestZombieDoesNotSubscribe: a worker that has lost the shard without noticing is taken over by its
// successor, and does not take the records back.
func TestZombieDoesNotSubscribe(t *testing.T) {
	lost := errors.New("the shard is another worker's")
	for name, busy := range map[string]bool{"its stream is taken over": false, "its stream ends unnoticed": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				zombie := &world{T: w.T, server: w.server, orders: w.orders, lost: lost,
					Reader: &Reader{Client: w.Client, Consumer: w.Consumer, Counters: new(Counters)}}
				ended := make(chan error)
				go func() {
					for _, err := range zombie.Read(w.Context(), shard0, oldest, zombie.holds) {
						if err != nil {
							ended <- err
						}
					}
				}()
				time.Sleep(10 * time.Second)
				if busy {
					w.orders.Break(shard0, io.EOF) // Kinesis may also end the older stream in this way
				}
				go func() {
					if err := <-ended; !errors.Is(err, lost) {
						w.Errorf("the zombie ends with %v", err)
					}
				}()
				want := w.every(time.Second, 100)
				time.AfterFunc(3*time.Minute, func() { w.orders.Split(shard0) })
				if got, end, err := w.read(time.Hour); !slices.Equal(got, want) || !end || err != nil {
					w.Errorf("%d records, the end: %v, %v", len(got), end, err)
				}
				w.counted(1, 0, 0, 0)
			})
		})
	}
}

// TestPausedProcessAsks: a subscription that has lasted its 5 minutes while the process was paused may have been taken
// over meanwhile.
func TestPausedProcessAsks(t *testing.T) {
	bubble(t, func(w *world) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(w.Context(), 6*time.Minute)
		defer cancel()
		for range w.Read(ctx, shard0, oldest, w.holds) {
			if since := time.Since(begun); since > life-time.Minute && since < life {
				time.Sleep(time.Until(begun.Add(life + 30*time.Second)))
			}
		}
		if w.asked != 1 {
			w.Errorf("asked %d times for the shard", w.asked)
		}
	})
}

// TestGivesUp: a shard that cannot be subscribed to for some minutes is an error, which is no error of Kinesis alone.
func TestGivesUp(t *testing.T) {
	bubble(t, func(w *world) {
		w.server.Fail("SubscribeToShard", &types.ResourceInUseException{Message: new("busy")}, -1)
		begun := time.Now()
		_, end, err := w.read(time.Hour)
		if took := time.Since(begun); !is[*types.ResourceInUseException](err) || end || took < 2*time.Minute || took > 10*time.Minute {
			w.Errorf("after %v: the end: %v, %v", took, end, err)
		}
	})
}

// TestNoEndWithoutChildren: an answer without a place to continue at, but without children, is not
// the end of a shard: the caller must poll it.
func TestNoEndWithoutChildren(t *testing.T) {
	bubble(t, func(w *world) {
		w.orders.Forget(shard0)
		w.orders.Add(kinesistest.Shard{Name: shard0, Records: []kinesistest.Record{{Key: "k", Data: []byte("0")}}, Closed: true})
		if got, end, err := w.read(time.Hour); len(got) > 0 || end || !errors.Is(err, errNoEnd) {
			w.Errorf("%q, the end: %v, %v", got, end, err)
		}
		w.orders.Add(kinesistest.Shard{Name: "child", Parents: []string{shard0}})
		time.Sleep(refusedFor)
		if got, end, err := w.read(time.Hour); !slices.Equal(got, []string{"0"}) || !end || err != nil {
			w.Errorf("%q, the end: %v, %v", got, end, err)
		}
	})
}

// TestReadEnds: Read closes its subscription when the caller stops, when the context ends, and when
// the caller panics, also if other answers have arrived. A context ends it at once, with its cause.
func TestReadEnds(t *testing.T) {
	bubble(t, func(w *world) {
		another := func() {
			w.orders.Put("k", []byte("x"))
			synctest.Wait()
		}
		for range w.Read(w.Context(), shard0, oldest, w.holds) {
			another()
			break
		}
		w.closed()
		time.Sleep(time.Minute)
		func() {
			defer func() { _ = recover() }()
			for range w.Read(w.Context(), shard0, oldest, w.holds) {
				another()
				panic("the caller")
			}
		}()
		w.closed()
		time.Sleep(time.Minute)
		for _, at := range []time.Duration{0, 7 * time.Second, 6 * time.Minute} {
			ctx, cancel := context.WithCancelCause(w.Context())
			cause := errors.New("handed off")
			begun := time.Now()
			time.AfterFunc(at, func() { cancel(cause) })
			var last error
			for _, err := range w.Read(ctx, shard0, oldest, w.holds) {
				if last = err; ctx.Err() == nil && time.Since(begun) > at-heartbeat {
					time.Sleep(at - time.Since(begun)) // busy when the context ends
					another()
				}
			}
			if !errors.Is(last, cause) || time.Since(begun) != at {
				w.Errorf("after %v, not %v: %v", time.Since(begun), at, last)
			}
			w.closed()
			time.Sleep(time.Minute)
		}
		last := types.StartingPosition{Type: types.ShardIteratorTypeLatest}
		for _, err := range w.Read(w.Context(), shard0, last, w.holds) {
			if err == nil {
				w.Error("begins at LATEST")
			}
		}
	})
}

// TestSlowCaller: a caller that needs longer than a subscription lasts gets every record once, and
// its time does not count as silence.
func TestSlowCaller(t *testing.T) {
	bubble(t, func(w *world) {
		want := w.every(time.Second, 20)
		time.AfterFunc(time.Hour, func() { w.orders.Split(shard0) })
		var got []string
		for a, err := range w.Read(w.Context(), shard0, oldest, w.holds) {
			if err != nil {
				w.Fatal(err)
			}
			for _, r := range a.Records {
				got = append(got, string(r.Data))
			}
			time.Sleep(7 * time.Minute)
		}
		if !slices.Equal(got, want) || w.Counters.Silent.Load() != 0 {
			w.Errorf("%q with %d silences", got, w.Counters.Silent.Load())
		}
	})
}

// TestGoroutines: after 1,000 subscriptions, each ended in one of the possible ways, there are as
// many goroutines as after the first, with those of the runtime.
func TestGoroutines(t *testing.T) {
	bubble(t, func(w *world) {
		faults := []error{io.EOF, kinesistest.ErrTorn, kinesistest.ErrSilence, &types.InternalFailureException{Message: new("oops")}, errors.New("reset")}
		n, first := 0, 0
		for _, err := range w.Read(w.Context(), shard0, oldest, w.holds) {
			if err != nil {
				w.Fatal(err)
			}
			if s := int(w.Counters.Subscriptions.Load()); s > n {
				n = s
				w.orders.Put("k", []byte("x")) // it may be on its way when the subscription ends
				w.orders.Break(shard0, faults[n%len(faults)])
			}
			switch synctest.Wait(); n {
			case 1:
				first = runtime.NumGoroutine()
			case 1000:
				// A leak would be hundreds; some belong to the runtime.
				if last := runtime.NumGoroutine(); last > first+20 {
					w.Errorf("%d goroutines after one subscription, %d after 1,000", first, last)
				}
				return
			}
		}
	})
}

// TestClient: a client for subscriptions has its own connections and no time limit, and keeps what
// else the user has set.
func TestClient(t *testing.T) {
	base := awshttp.NewBuildableClient().WithTimeout(3 * time.Second).WithReadTimeout(time.Second).
		WithTransportOptions(func(t *http.Transport) { t.MaxIdleConnsPerHost = 7 })
	own := Client(kinesis.New(kinesis.Options{Region: "eu-central-1", HTTPClient: base})).Options()
	client, ok := own.HTTPClient.(*awshttp.BuildableClient)
	if !ok || client == base || client.GetTimeout() != 0 || client.GetTransport().MaxIdleConnsPerHost != 7 || own.Region != "eu-central-1" {
		t.Errorf("%+v", own.HTTPClient)
	}
	if limit, _ := client.GetReadTimeout(); limit != 0 {
		t.Errorf("it reads for at most %v", limit)
	}
}
