package drive

import (
	"context"
	"errors"
	"sync"
	"time"
)

// members asks the members of a set by their own names, in turn. No load balancer routes around a
// member that is replaced, so its clients do, as a database's clients do: a member that says it is
// leaving is not asked again until it answers under its name, no longer says so, and goes on doing so: the name
// servers do not all learn of its new address at once, and remember for some seconds that there was none.
type members struct {
	clients []client

	mu   sync.Mutex
	away []bool
	turn int
}

// A member that left is checked every recheck, and is back once it has answered rechecks times in a row.
const (
	recheck  = 200 * time.Millisecond
	rechecks = 20
)

func newMembers(clients []client) *members {
	return &members{clients: clients, away: make([]bool, len(clients))}
}

// ask is the request of this kind.
func (m *members) ask(ctx context.Context) (string, error) {
	i, ok := m.pick()
	if !ok {
		return "the set", errors.New("every member is away")
	}
	r, target, err := m.clients[i].fresh(ctx)
	if r.leaving {
		m.mark(i, true)
	}
	return m.clients[i].host + " at " + target, err
}

// pick returns the next member that is there.
func (m *members) pick() (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range m.clients {
		m.turn = (m.turn + 1) % len(m.clients)
		if !m.away[m.turn] {
			return m.turn, true
		}
	}
	return 0, false
}

func (m *members) mark(i int, away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away[i] = away
}

func (m *members) isAway(i int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away[i]
}

// watch checks members that left, until ctx ends. Its requests are not counted: the member announced that
// it would not answer.
func (m *members) watch(ctx context.Context) {
	right := make([]int, len(m.clients))
	for wait(ctx, recheck) {
		for i, c := range m.clients {
			if !m.isAway(i) {
				continue
			}
			attempt, cancel := context.WithTimeout(ctx, patience)
			r, _, err := c.fresh(attempt)
			cancel()
			if right[i]++; err != nil || r.leaving {
				right[i] = 0
			}
			if right[i] >= rechecks {
				right[i] = 0
				m.mark(i, false)
			}
		}
	}
}
