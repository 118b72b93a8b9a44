package deathwatch

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// The side of the worker that is watched. A connection is in one of these states.
//
//	accepted → being answered, on a goroutine → kept, without one → closed
//	    ↓              ↓ no time left, or the incarnation has changed
//	  closed: 64 others are being answered, or there is no incarnation
//
// Called by the owner of the server: Serve on a goroutine of its own, Answer when the incarnation of
// the worker changes, and Close at its end.
//
// Invariant: all kept connections were answered as one incarnation, the last one that Answer got.

const (
	answerTime   = time.Second      // how long an answer may take, with the handshake of TLS
	visitTime    = time.Second / 10 // from one look for visitors to the next
	maxAnswering = 64               // the most connections that are being answered
	maxKept      = 128              // the most connections that are kept after their answer
	smallBuffer  = 4 << 10          // the receive buffer of a kept connection
	endTime      = time.Second / 20 // how long a kept connection may take to show that it was closed
	firstRetry   = 5 * time.Millisecond
	lastRetry    = time.Second
)

// A Server answers each connection with the incarnation of its worker, and with nothing else.
//
// A goroutine answers a connection and ends within a second. Then the connection is kept, without a
// goroutine. The server authenticates nobody, so it limits the number of both kinds of connections.
// It reads nothing but a byte when it has to know whether a connection has ended, and closes the oldest kept
// connection for a new one. A peer whose connection was closed dials again. So a hostile client can
// hide a worker from its peers for a while, but it cannot make them believe that the worker is dead.
type Server struct {
	listener net.Listener
	visited  func()
	done     chan struct{} // closed by Close

	mu          sync.Mutex
	closed      bool
	start       func(func())        // of Serve
	incarnation string              // what to answer; "": nothing
	answered    string              // the last incarnation that was not "": what all kept connections were answered
	answering   map[*visit]struct{} // the connections that are being answered
	kept        []net.Conn          // the connections after their answer, the oldest first
	fresh       int                 // how many connections were kept since the last look for visitors
	looking     bool                // a goroutine waits to look for visitors
	looked      time.Time           // when the last look began
}

// A visit is a connection that is being answered. A connection itself cannot be the key of a map,
// because a user's listener may return a type that cannot be compared.
type visit struct{ conn net.Conn }

// NewServer returns a server that has the listener. The server answers nothing until Answer is
// called.
//
// The function visited is called after a connection was answered, unless the connection ends within 50 ms: then it was
// a peer that doubts a refusal (doubt.go), or a health check. It is called at most ten times a second. A visit that
// comes soon after another one is reported later.
func NewServer(l net.Listener, visited func()) *Server {
	return &Server{listener: l, visited: visited, done: make(chan struct{}), answering: map[*visit]struct{}{}}
}

// Serve accepts connections until Close is called, and then returns nil, or until the listener fails
// for good, and then returns the error. Errors that call themselves temporary, such as too many open
// files, are retried. The function start runs its argument on a goroutine; the caller waits for
// these goroutines after Close.
//
// If the listener has failed, Serve closes neither the kept connections nor the listener: as long as
// the listener is open, the kernel does not refuse connections to a worker that lives. If somebody
// else has closed it, peers that dial from then on are refused, although the worker lives. So a
// worker whose Serve returns an error must not be watched any longer: it withdraws its address, or
// ends its incarnation.
func (s *Server) Serve(start func(func())) error {
	s.mu.Lock()
	s.start = start
	s.mu.Unlock()
	for pause := firstRetry; ; {
		conn, err := s.accept()
		switch {
		case s.isClosed():
			if err == nil {
				hangUp(conn)
			}
			return nil
		case err == nil:
			s.admit(conn, start)
			pause = firstRetry
			continue
		case !isTemporary(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-s.done:
		}
		pause = min(2*pause, lastRetry)
	}
}

// accept returns the next connection. A listener that returns neither a connection nor an error has
// failed for good: another call of Accept could begin an endless loop.
func (s *Server) accept() (conn net.Conn, err error) {
	err = guarded(func() (err error) {
		conn, err = s.listener.Accept()
		return err
	})
	if err == nil && conn == nil {
		err = errors.New("the listener returned no connection")
	}
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return conn, nil
}

// isTemporary reports whether Accept may succeed later. The standard library's listeners say so
// if open files are short, or if the client has given up.
func isTemporary(err error) (temporary bool) {
	_ = guarded(func() error { // an error of a user's listener may panic when it is asked
		t, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err)
		temporary = ok && t.Temporary() || slices.ContainsFunc(passing(), func(p error) bool { return errors.Is(err, p) })
		return nil
	})
	return temporary
}

// admit begins to answer a connection, or closes it at once if too many are being answered.
func (s *Server) admit(conn net.Conn, start func(func())) {
	v := &visit{conn}
	s.mu.Lock()
	inc, full := s.incarnation, s.closed || len(s.answering) >= maxAnswering
	if inc != "" && !full {
		s.answering[v] = struct{}{}
	}
	s.mu.Unlock()
	if inc == "" || full {
		hangUp(conn)
		return
	}
	start(func() {
		s.attend(v, inc)
		s.announce()
	})
}

// attend answers a connection, and keeps or closes it.
func (s *Server) attend(v *visit, inc string) {
	defer s.left(v) // last, because closing may take time, and the goroutine counts until its end
	ok := false     // also if the connection calls runtime.Goexit
	defer func() {
		if closing := s.settle(v, inc, ok); closing != nil {
			hangUp(closing)
		}
	}()
	ok = guarded(func() error { return answer(v.conn, inc) }) == nil
}

// announce calls visited if one of the connections that were kept since the last look still stands. One goroutine waits
// for the next look, for all of them.
func (s *Server) announce() {
	s.mu.Lock()
	pause := visitTime - time.Since(s.looked)
	if s.fresh == 0 || s.looking {
		s.mu.Unlock()
		return
	}
	s.looking = true
	s.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-s.done:
		}
	}
	s.mu.Lock()
	fresh := slices.Clone(s.kept[max(0, len(s.kept)-s.fresh):])
	s.fresh, s.looking, s.looked = 0, false, time.Now()
	s.mu.Unlock()
	if anyStands(fresh) && !s.isClosed() {
		s.visited()
	}
}

// left is called at the end of a goroutine that has answered.
func (s *Server) left(v *visit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answering, v)
}

// answer sends the answer within its time, and prepares the connection to be kept.
func answer(conn net.Conn, incarnation string) error {
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := conn.Write(answerOf(incarnation)); err != nil {
		return err
	}
	if tcp := tcpOf(conn); tcp != nil {
		// The kernel holds what a client sends, because nobody reads it. Only after the answer,
		// because a handshake of TLS with a long certificate is slow with a small buffer.
		_ = tcp.SetReadBuffer(smallBuffer)
	}
	keepAlive(conn)
	return conn.SetDeadline(time.Time{})
}

// settle keeps a connection that was answered as inc, and returns the connection that must be
// closed, if any: this one, or the oldest.
func (s *Server) settle(v *visit, inc string, ok bool) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.closed || inc != s.answered {
		return v.conn
	}
	s.kept, s.fresh = append(s.kept, v.conn), s.fresh+1
	if len(s.kept) <= maxKept {
		return nil
	}
	oldest := s.kept[0]
	s.kept = append(s.kept[:0], s.kept[1:]...)
	return oldest
}

// hears reports whether a connection that was kept has not reached its end. If there are some from that host, only these
// count. Otherwise all do, because an address may be translated on the way. A connection that has just been closed at
// the other side has a moment to show that.
func (s *Server) hears(host string) bool {
	s.mu.Lock()
	kept := slices.Clone(s.kept)
	s.mu.Unlock()
	from := slices.DeleteFunc(slices.Clone(kept), func(conn net.Conn) bool { return hostOf(conn) != host })
	if len(from) > 0 {
		kept = from
	}
	return anyStands(kept)
}

// Answer sets the incarnation to answer from now on. Without one, new connections are closed without
// an answer, and the kept ones stay. An incarnation that no answer can contain counts as none.
//
// If the incarnation changes to another one, all kept connections are closed. So the peers dial
// again, and learn that the incarnation they watch has ended.
func (s *Server) Answer(incarnation string) {
	if !valid(incarnation) {
		incarnation = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incarnation = incarnation
	if incarnation == "" || incarnation == s.answered {
		return
	}
	for _, conn := range s.kept {
		s.start(func() { hangUp(conn) })
	}
	s.answered, s.kept = incarnation, nil
}

// Close closes the listener first and then all connections, so peers that dial again are refused. Serve
// and all goroutines of the server return soon after. Close waits for the listener to be closed, and for
// nothing else.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.done)
	closing := s.kept
	for v := range s.answering {
		closing = append(closing, v.conn)
	}
	s.kept = nil
	start := s.start
	s.mu.Unlock()
	_ = guarded(s.listener.Close)
	for _, conn := range closing {
		start(func() { hangUp(conn) })
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
