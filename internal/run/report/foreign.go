package report

import (
	"strings"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// foreign judges a run that measures changes which are not its own as its exit code does.
func (v *Verdict) foreign(in Input, m *Model, all loss.Account) {
	r, t, measured := result.Of(in.Plan, in.Records), m.Totals, len(v.Missing) == 0
	proof, why := r.Judge()
	lost := proof == result.Lost || proof == result.Broken
	if r.After == nil && !lost {
		sure := t.Lost
		for _, path := range all {
			sure -= path.Displaced()
		}
		lost = r.Beyond(sure, t.Leaked, t.ProbeGapMillis)
	}
	away := m.losesElsewhere(in.Plan.Change.MaxLost)
	lost = lost || away
	m.worse = proof == result.Lost || away
	if r.Before != nil {
		m.accepted = *r.Before
		if r.Before.Lossy != nil {
			m.acceptedOf = r.Before.Lossy.Sum()
		}
	}
	if m.Run.Outcome == Done && proof == result.Unproven {
		v.Missing = append(v.Missing, "The result is not proven: "+why+".")
	}
	if v.Why == "" && (proof == result.Broken ||
		r.After != nil && (proof == result.Lost || proof == result.Failed || proof == result.Interrupted)) {
		v.Why = why
	}
	v.Level = v.levelOf(m, proof, lost, measured)
	v.Title, v.Word = title(m, v.Level), word(v.Level)
	seen := costs(m)
	if seen == nothingLost && proof != result.Good {
		seen = "no loss was seen"
	}
	begin, _, _ := strings.Cut(v.Title, ";")
	switch m.Run.Outcome {
	case Running, Paused, Measuring:
		v.Title = begin + "; until now " + seen
		switch {
		case r.After != nil:
		case proof == result.Broken:
			v.Word = "until now: a signal failed"
		case m.NewPods.fails() > 0:
			v.Word = "until now: new pods failed"
		case m.Samples.fails() > 0:
			v.Word = "until now: sampled connections changed"
		case lost:
			v.Word = "until now: a loss beyond the limit"
		default:
			v.Word = "until now: no loss beyond the limit"
		}
	case RollingBack, RolledBack, NeedsPerson:
		v.Title = begin + "; " + seen
		if proof == result.Broken {
			v.Title = begin + "; a signal failed since the baseline; " + seen
		}
	case Done:
		switch {
		case proof == result.Lost || away:
			v.Title = "A loss is proven: " + seen
		case proof == result.Broken:
			v.Title = "A signal failed since the baseline; " + seen
		case proof == result.Failed:
			v.Title = "The command failed; " + seen
		case proof == result.Interrupted:
			v.Title = "Interrupted; until then " + seen
		case proof == result.Unproven:
			v.Title = "Not proven; " + seen
		case proof == result.Good:
			if as := r.As(); as != "" && v.Level == Fair {
				v.Title, v.Word, v.Why = "The network lost probes before, and no more since; "+seen,
					"passed, compared with a baseline that lost probes", "Compared with the baseline: "+as+"."
			}
			if len(r.Shut()) > 0 {
				v.Title += "; some ports of nodes are shut, and were not measured"
			}
		}
	}
}

func (v *Verdict) levelOf(m *Model, proof result.Proof, lost, measured bool) Level {
	switch {
	case lost, m.Run.Outcome == NeedsPerson, m.Run.Outcome == Done && proof == result.Failed:
		return Bad
	case m.Run.Outcome == NotStarted:
		return Unknown
	case m.Run.Outcome != Done:
		return Stopped
	case proof != result.Good, !measured:
		return Unknown
	case m.Totals.Lost > 0:
		return Fair
	case m.Totals.OutsideSent == 0:
		return Partial
	}
	return Good
}
