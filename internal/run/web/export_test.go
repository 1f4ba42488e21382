package web

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// Unwatched makes a source read everything when it is asked for: the fakes of client-go have no watches for the probes'
// kinds.
func (s *Source) Unwatched() *Source {
	s.actor, s.tail = run.NewActor(s.Client), journal.NewTail(s.Client.Dynamic, s.Name)
	return s
}

// Hurry sets how long a viewer looks on while no check succeeds, and how long the body of a request may take.
func (s *Server) Hurry(unproven, body time.Duration) { s.unproven, s.body = unproven, body }

// Look reads everything once.
func (s *Source) Look(ctx context.Context) error { return s.look(ctx) }

// During says where in the run of a plan a loss began.
func During(p *plan.Plan, one report.Moment) string { return during(run.NewScript(p), one) }
