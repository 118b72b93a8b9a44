package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"github.com/shardlease/shardlease-go/shardlease/fencesql"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
)

func token(f fencetest.Fence) fence.Token {
	return fence.Token{Group: "orders", Shard: f.Shard, Generation: f.Generation}
}

func isStale(err error) bool { return errors.Is(err, checkpoint.ErrStale) }

// TestTransactionsOfPostgresAreFenced: a stale transaction has no effect, wherever its client was
// stopped, and in the strictest isolation too.
func TestTransactionsOfPostgresAreFenced(t *testing.T) {
	for _, options := range []*sql.TxOptions{nil, {Isolation: sql.LevelSerializable}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			t.Parallel()
			db := open(t)
			guard := fencesql.Guard{DB: db, Options: options}
			fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
				return fencetest.Sink{
					Effects: entries(db),
					Raise: func(ctx context.Context, f fencetest.Fence) error {
						return fence.Raise(guard)(fence.NewContext(ctx, token(f)), f.Shard, f.Generation)
					},
					Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
						return guard.Do(ctx, token(f), insert(f.Shard, string(effect)))
					},
				}
			})
		})
	}
}

// TestServiceOnPostgresIsFenced: a service that applies the effects of requests in transactions is
// fenced.
func TestServiceOnPostgresIsFenced(t *testing.T) {
	t.Parallel()
	db := open(t)
	guard := fencesql.Guard{DB: db}
	mux := http.NewServeMux()
	mux.Handle("POST /fence", fencehttp.Handler[*sql.Tx]{Guard: guard})
	mux.Handle("POST /", fencehttp.Handler[*sql.Tx]{
		Guard: guard,
		Effect: func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
			text, err := io.ReadAll(r.Body)
			token, _ := fence.FromContext(r.Context())
			return errors.Join(err, insert(token.Shard, string(text))(r.Context(), tx))
		},
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &fencehttp.Transport{Base: server.Client().Transport}}
	fencetest.Play(t, func(*fencetest.T) fencetest.Sink {
		return fencetest.Sink{
			Effects: entries(db),
			Refusal: isStale,
			Raise: func(ctx context.Context, f fencetest.Fence) error {
				return fencehttp.Raise(client, server.URL+"/fence")(fence.NewContext(ctx, token(f)), f.Shard, f.Generation)
			},
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				r, err := http.NewRequestWithContext(fence.NewContext(ctx, token(f)), http.MethodPost, server.URL, strings.NewReader(string(effect)))
				if err != nil {
					return err
				}
				response, err := client.Do(r)
				if err != nil {
					return err
				}
				defer func() { _ = response.Body.Close() }()
				if response.StatusCode >= 300 {
					err = errors.New(response.Status)
				}
				return errors.Join(fencehttp.Check(response), err)
			},
		}
	})
}

// A recorder is a test that records its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestSelectingFirstLetsPass: a transaction that selects the fence, compares and then writes
// accepts a stale effect. One transaction is no atomic step unless it locks the row.
func TestSelectingFirstLetsPass(t *testing.T) {
	t.Parallel()
	db := open(t)
	apply := func(ctx context.Context, f fencetest.Fence, effect []byte) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		var observed int64
		err = tx.QueryRowContext(ctx, "SELECT generation FROM shardlease_fences WHERE shard = $1", f.Shard).Scan(&observed)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if observed > f.Generation {
			return token(f).Refused(observed)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO shardlease_fences VALUES ('orders', $1, $2)
			ON CONFLICT (shard_group, shard) DO UPDATE SET generation = excluded.generation`, f.Shard, f.Generation)
		if err = errors.Join(err, insert(f.Shard, string(effect))(ctx, tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	r := &recorder{TB: t}
	fencetest.Play(r, func(*fencetest.T) fencetest.Sink { return fencetest.Sink{Apply: apply, Effects: entries(db)} })
	if all := strings.Join(r.failures, "\n"); !strings.Contains(all, "after one of generation 8: it checks first and writes after") {
		t.Errorf("the report is %q", all)
	}
}

// TestPausedTransactionEnds: PostgreSQL ends the transaction of a paused process, so its successor
// need not wait until the process wakes up. The process then has no effect.
func TestPausedTransactionEnds(t *testing.T) {
	t.Parallel()
	db := open(t)
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = 500', current_database()); END $$`)
	db.SetMaxIdleConns(0) // the setting is for new connections
	guard, at := fencesql.Guard{DB: db}, func(generation int64) fence.Token {
		return fence.Token{Group: "orders", Shard: "shard-0", Generation: generation}
	}
	paused, wake, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		late <- guard.Do(t.Context(), at(7), func(ctx context.Context, tx *sql.Tx) error {
			close(paused)
			<-wake
			return insert("shard-0", "late")(ctx, tx)
		})
	}()
	<-paused
	if err := guard.Do(t.Context(), at(8), insert("shard-0", "of the successor")); err != nil {
		t.Error(err)
	}
	close(wake)
	if err := <-late; err == nil {
		t.Error("the transaction of the paused process was committed")
	}
	if list, err := entries(db)(t.Context(), "shard-0"); err != nil || len(list) != 1 {
		t.Errorf("the entries are %q, %v", list, err)
	}
}

// TestIsolationIsThatOfOptions: the transactions of a guard have its options.
func TestIsolationIsThatOfOptions(t *testing.T) {
	t.Parallel()
	guard := fencesql.Guard{DB: open(t), Options: &sql.TxOptions{Isolation: sql.LevelSerializable}}
	var level string
	err := guard.Do(t.Context(), fence.Token{Group: "orders", Shard: "s", Generation: 7}, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "SHOW transaction_isolation").Scan(&level)
	})
	if err != nil || level != "serializable" {
		t.Errorf("the isolation is %q, %v", level, err)
	}
}

// TestPanicHoldsNoLock: a panic of an effect ends the transaction, and the next one does not wait.
func TestPanicHoldsNoLock(t *testing.T) {
	t.Parallel()
	guard := fencesql.Guard{DB: open(t)}
	token := fence.Token{Group: "orders", Shard: "s", Generation: 7}
	func() {
		defer func() { _ = recover() }()
		_ = guard.Do(t.Context(), token, func(context.Context, *sql.Tx) error { panic("in the effect") })
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := guard.Do(ctx, token, insert("s", "afterwards")); err != nil {
		t.Error(err)
	}
}

// TestRefusedTransaction: the error has both generations, groups are apart, the effect of a refused
// token does not run, and a failed effect raises no fence.
func TestRefusedTransaction(t *testing.T) {
	t.Parallel()
	db := open(t)
	guard, failed := fencesql.Guard{DB: db}, errors.New("failed")
	do := func(group string, generation int64, err error) error {
		return guard.Do(t.Context(), fence.Token{Group: group, Shard: "s", Generation: generation}, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insert("s", fmt.Sprint(group, generation))(ctx, tx), err)
		})
	}
	if err := do("orders", 9, failed); !errors.Is(err, failed) {
		t.Error(err)
	}
	if err := errors.Join(do("orders", 8, nil), do("payments", 7, nil)); err != nil {
		t.Error(err)
	}
	stale, ok := errors.AsType[*checkpoint.StaleError](do("orders", 7, nil))
	if want := (checkpoint.StaleError{Shard: "s", Mine: 7, Observed: 8}); !ok || *stale != want {
		t.Errorf("got %v", stale)
	}
	if err := do("", 9, nil); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("an invalid token: %v", err)
	}
	if list, err := entries(db)(t.Context(), "s"); err != nil || fmt.Sprintf("%s", list) != "[orders8 payments7]" {
		t.Errorf("the entries are %s, %v", list, err)
	}
}
