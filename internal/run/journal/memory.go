package journal

import (
	"context"
	"slices"
	"sync"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Memory is a journal in memory, for tests and dry runs. The zero value is empty.
type Memory struct {
	mu      sync.Mutex
	records []engine.Record
}

// Append implements engine.Journal.
func (m *Memory) Append(_ context.Context, records ...engine.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last engine.Record
	if n := len(m.records); n > 0 {
		last = m.records[n-1]
	}
	fresh, err := admit(records, len(m.records), last)
	m.records = append(m.records, fresh...)
	return err
}

// Records implements engine.Journal.
func (m *Memory) Records(context.Context) ([]engine.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records), nil
}
