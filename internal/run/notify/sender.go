package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// GiveUpAfter is how long one event is retried. The events after it wait meanwhile: they come in order.
const GiveUpAfter = 5 * time.Minute

const (
	// recordEvery is the interval at which sent is called again after it has failed.
	recordEvery = 5 * time.Second
	// firstPause doubles with each attempt, up to longestPause.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// Sender sends events one after another, in the order in which they were added, without making anyone wait.
type Sender struct {
	target *Target
	sent   func(context.Context, Event) error
	say    func(string)

	lock   sync.Mutex
	queue  []Event
	closed bool
	ended  bool          // by End
	more   chan struct{} // has a token if the queue or closed has changed
	done   chan struct{}
	end    context.CancelFunc
}

// Start begins to send. sent is called after each event that was delivered or given up, and again while it fails and
// the event is the last one. say gets warnings.
func (t *Target) Start(ctx context.Context, sent func(context.Context, Event) error, say func(string)) *Sender {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // the end of a run is told, too
	s := &Sender{target: t, sent: sent, say: say, more: make(chan struct{}, 1), done: make(chan struct{}), end: end}
	go s.loop(ctx)
	return s
}

// Add queues an event, and does not wait.
func (s *Sender) Add(e Event) {
	s.lock.Lock()
	if !s.ended {
		s.queue = append(s.queue, e)
	}
	s.lock.Unlock()
	s.wake()
}

// End ends the sending at once: another process sends what is queued.
func (s *Sender) End() {
	s.lock.Lock()
	s.queue, s.closed, s.ended = nil, true, true
	s.lock.Unlock()
	s.end()
}

// Waiting is how many events are neither delivered nor given up.
func (s *Sender) Waiting() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.queue)
}

// Close sends what is queued for at most so long, or until ctx ends, and says how many events remain.
func (s *Sender) Close(ctx context.Context, within time.Duration) {
	s.lock.Lock()
	s.closed = true
	s.lock.Unlock()
	s.wake()
	select {
	case <-s.done:
	case <-time.After(within):
	case <-ctx.Done():
	}
	s.end()
	<-s.done
	s.lock.Lock()
	defer s.lock.Unlock()
	if n := len(s.queue); n > 0 {
		s.say(fmt.Sprintf("warning: %d notifications were not delivered to %s", n, s.target))
	}
}

func (s *Sender) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// next is the first event of the queue; over is true if there is none, and none comes.
func (s *Sender) next() (e Event, found, over bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.queue) == 0 {
		return Event{}, false, s.closed
	}
	return s.queue[0], true, false
}

func (s *Sender) loop(ctx context.Context) {
	defer close(s.done)
	var last *Event // that was sent, while this is not recorded
	for {
		e, found, over := s.next()
		switch {
		case over:
			if last != nil {
				_ = s.sent(ctx, *last) // the warning is out
			}
			return
		case !found:
			var again <-chan time.Time
			if last != nil {
				again = time.After(recordEvery)
			}
			select {
			case <-ctx.Done():
				return
			case <-s.more:
			case <-again:
				if s.sent(ctx, *last) == nil {
					last = nil
				}
			}
			continue
		}
		if err := s.send(ctx, e); err != nil {
			if ctx.Err() != nil {
				return // it stays queued, and the next process sends it
			}
			s.say(fmt.Sprintf("warning: the notification %s is given up: %s: %v", e.Type, s.target, err))
		}
		s.lock.Lock()
		if s.ended {
			s.lock.Unlock()
			return
		}
		s.queue = s.queue[1:]
		s.lock.Unlock()
		last = nil
		if err := s.sent(ctx, e); err != nil && ctx.Err() == nil {
			last = &e
			s.say(fmt.Sprintf("warning: another process may send the notification %s again: %v", e.Type, err))
		}
	}
}

// send sends an event until it is accepted, or giveUpAfter has passed.
func (s *Sender) send(ctx context.Context, e Event) error {
	began := time.Now()
	for pause, told := firstPause, false; ; pause = min(2*pause, longestPause) {
		err := s.target.deliver(ctx, e)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, final := errors.AsType[finalError](err); final || time.Since(began)+pause > GiveUpAfter {
			return err
		}
		if !told {
			told = true
			s.say(fmt.Sprintf("warning: the notification %s is retried: %s: %v", e.Type, s.target, err))
		}
		if outage.Sleep(ctx, pause) != nil {
			return err
		}
	}
}
