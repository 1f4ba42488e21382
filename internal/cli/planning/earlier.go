package planning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// mostRuns is how many earlier runs count, of the newest mostRead: those tell most of the cluster as it is.
const mostRuns, mostRead = 3, 6

// earlierWithin bounds the reading of earlier runs: a person waits for the plan.
const earlierWithin = 20 * time.Second

// errVersion says that a plan was made by another version of Theseus, whose steps may be others.
var errVersion = errors.New("made by another version of Theseus")

// earlier reads the newest runs of this cluster that have ended. It tells which of them it cannot use. Nil if it uses
// none: a plan needs no earlier run. A plan of another cluster or version is not proven, nor is its journal read.
func earlier(ctx context.Context, client dynamic.Interface, uid, version string, tell func(string)) *estimate.Learnt {
	note := func(what string, err error) {
		tell(printable.Line(fmt.Sprintf("note: the estimate does not use %s: %v", what, err)))
	}
	ctx, cancel := context.WithTimeout(ctx, earlierWithin)
	defer cancel()
	migrations, err := journal.List(ctx, client)
	if err != nil {
		note("earlier runs of this cluster", err)
		return nil
	}
	wanted := func(head journal.Head) error {
		switch {
		case head.Theseus != version:
			return errVersion
		case head.Cluster.UID != uid || uid == "":
			return errors.New("it is a run of another cluster")
		}
		return nil
	}
	learnt, read, others := &estimate.Learnt{}, 0, []string{}
	for i := range migrations {
		m := &migrations[i]
		if phase := engine.Phase(m.Status.Phase); phase != engine.PhaseDone && phase != engine.PhaseRolledBack {
			continue
		}
		if read++; read > mostRead || len(learnt.Runs) == mostRuns {
			break
		}
		p, err := journal.LoadIf(ctx, client, m.Name, wanted)
		if errors.Is(err, errVersion) {
			others = append(others, m.Name)
			continue
		}
		if err == nil && (p.Foreign() || p.Mirror != nil) {
			continue // most of its time is that of a command or of a person
		}
		if err == nil {
			var records []engine.Record
			if records, err = journal.NewCluster(client, m.Name).Records(ctx); err == nil {
				err = propose.Learn(learnt, p, records)
			}
		}
		if err != nil && ctx.Err() != nil {
			note("more earlier runs of this cluster", fmt.Errorf("not read within %s", earlierWithin))
			break
		}
		if err != nil {
			note("the earlier run "+m.Name, err)
		}
	}
	if len(others) > 0 {
		note("earlier runs of this cluster ("+strings.Join(others, ", ")+")", errVersion)
	}
	if len(learnt.Runs) == 0 {
		return nil
	}
	return learnt
}
