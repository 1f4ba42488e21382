package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

const (
	// giveUpAfter is how long one event is retried. The events after it wait meanwhile: they come in order.
	giveUpAfter = 5 * time.Minute
	// firstPause doubles with each attempt, up to longestPause.
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// Sender sends events one after another, in the order in which they were added, without making anyone wait.
type Sender struct {
	target *Target
	sent   func(context.Context, Event)
	say    func(string)

	lock   sync.Mutex
	queue  []Event
	closed bool
	more   chan struct{} // has a token if the queue or closed has changed
	done   chan struct{}
	end    context.CancelFunc
}

// Start begins to send. sent is called after each event that was delivered or given up, and say gets warnings.
func (t *Target) Start(ctx context.Context, sent func(context.Context, Event), say func(string)) *Sender {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) // the end of a run is told, too
	s := &Sender{target: t, sent: sent, say: say, more: make(chan struct{}, 1), done: make(chan struct{}), end: end}
	go s.loop(ctx)
	return s
}

// Add queues an event, and does not wait.
func (s *Sender) Add(e Event) {
	s.lock.Lock()
	s.queue = append(s.queue, e)
	s.lock.Unlock()
	s.wake()
}

// Close sends what is queued for at most so long, and says how many events remain.
func (s *Sender) Close(within time.Duration) {
	s.lock.Lock()
	s.closed = true
	s.lock.Unlock()
	s.wake()
	select {
	case <-s.done:
	case <-time.After(within):
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
	for {
		e, found, over := s.next()
		switch {
		case over:
			return
		case !found:
			select {
			case <-ctx.Done():
				return
			case <-s.more:
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
		s.queue = s.queue[1:]
		s.lock.Unlock()
		s.sent(ctx, e)
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
		if _, final := errors.AsType[finalError](err); final || time.Since(began)+pause > giveUpAfter {
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
