package planning

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// mostRuns is how many earlier runs count, of the newest mostRead: those tell most of the cluster as it is.
const mostRuns, mostRead = 3, 6

// earlier reads the newest runs of this cluster that have ended. It tells which of them it cannot use. Nil if it uses
// none: a plan needs no earlier run.
func earlier(ctx context.Context, client dynamic.Interface, uid, version string, tell func(string)) *estimate.Learnt {
	note := func(what string, err error) {
		tell(printable.Line(fmt.Sprintf("note: the estimate does not use %s: %v", what, err)))
	}
	migrations, err := journal.List(ctx, client)
	if err != nil {
		note("earlier runs of this cluster", err)
		return nil
	}
	learnt, read := &estimate.Learnt{}, 0
	for i := range migrations {
		m := &migrations[i]
		if phase := engine.Phase(m.Status.Phase); phase != engine.PhaseDone && phase != engine.PhaseRolledBack {
			continue
		}
		if read++; read > mostRead || len(learnt.Runs) == mostRuns {
			break
		}
		p, _, err := journal.Load(ctx, client, m.Name)
		if err == nil && (p.Foreign() || p.Mirror != nil) {
			continue // most of its time is that of a command or of a person
		}
		if err == nil {
			var records []engine.Record
			if records, err = journal.NewCluster(client, m.Name).Records(ctx); err == nil {
				err = propose.Learn(learnt, p, records, uid, version)
			}
		}
		if err != nil {
			note("the earlier run "+m.Name, err)
		}
	}
	if len(learnt.Runs) == 0 {
		return nil
	}
	return learnt
}
