package web

import (
	"context"

	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Unwatched makes a source read everything when it is asked for: the fakes of client-go have no watches for the probes' kinds.
func (s *Source) Unwatched() *Source {
	s.actor, s.tail = run.NewActor(s.Client), journal.NewTail(s.Client.Dynamic, s.Name)
	return s
}

// Look reads everything once.
func (s *Source) Look(ctx context.Context) error { return s.look(ctx) }
