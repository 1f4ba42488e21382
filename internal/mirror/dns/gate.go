package dns

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Gate implements engine.Gate for names: during the bake time it sends requests to the services by their names.
type Gate struct {
	Prober *Prober
	Clock  Clock
	// Every is the time between two rounds; 0 for 1 s.
	Every time.Duration
}

// perRound bounds how many names one round asks; large waves are sampled, another part each time.
const perRound = 200

// Ask implements engine.Gate.
func (g *Gate) Ask(ctx context.Context, gate step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	var args shift.GateArgs
	if err := json.Unmarshal(gate.Args, &args); err != nil {
		return engine.Verdict{}, fmt.Errorf("arguments of the gate: %w", err)
	}
	tally := &tally{verdict: engine.Verdict{Paths: len(args.Probes)}}
	end := g.Clock.Now().Add(time.Duration(gate.Bake))
	for {
		probes := slices.Clone(args.Probes)
		rand.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
		g.Prober.each(probes[:min(perRound, len(probes))], func(probe zone.Probe) {
			tally.add(probe, g.ask(ctx, probe))
			if args.Direct {
				tally.add(probe, g.direct(ctx, probe))
			}
		})
		if err := ctx.Err(); err != nil {
			return engine.Verdict{}, err
		}
		if tally.verdict.Lost > gate.MaxLost {
			break // it cannot pass any more: back as soon as can be
		}
		if err := follow(ctx); err != nil {
			return engine.Verdict{}, err
		}
		if !g.Clock.Now().Before(end) {
			break
		}
		every := g.Every
		if every <= 0 {
			every = time.Second
		}
		if err := g.Clock.Sleep(ctx, every); err != nil {
			return engine.Verdict{}, err
		}
	}
	v := tally.verdict
	v.Pass = v.Lost <= gate.MaxLost && (v.Sent > 0 || len(args.Probes) == 0)
	v.Reason = fmt.Sprintf("%d requests to the services of %d names, %d failed", v.Sent, v.Paths, v.Lost)
	if len(v.Bad) > 0 {
		v.Reason += ": " + strings.Join(v.Bad[:min(3, len(v.Bad))], "; ")
	}
	return v, nil
}

// ask resolves the name as a client does, and asks what it finds.
func (g *Gate) ask(ctx context.Context, probe zone.Probe) error {
	host := strings.Replace(probe.Host, "*", "theseus", 1)
	addresses, err := g.Prober.Resolve(ctx, host)
	if err != nil {
		return err
	}
	_, err = g.Prober.Ask(ctx, probe, addresses[0])
	return err
}

// direct asks an address that the name has next to another.
func (g *Gate) direct(ctx context.Context, probe zone.Probe) error {
	addresses, err := g.Prober.Addresses(ctx, probe.At)
	if err != nil || len(addresses) == 0 {
		return cmp.Or(err, errNoAddress)
	}
	if _, err = g.Prober.Ask(ctx, probe, addresses[0]); err != nil {
		err = fmt.Errorf("at %s: %w", addresses[0], err)
	}
	return err
}

// tally counts from several goroutines.
type tally struct {
	lock    sync.Mutex
	verdict engine.Verdict
}

func (t *tally) add(probe zone.Probe, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.verdict.Sent++
	if err == nil {
		return
	}
	t.verdict.Lost++
	const most = 10
	if text := fmt.Sprintf("%s %s: %v", probe.Kind, probe.Host, err); len(t.verdict.Bad) < most &&
		!slices.Contains(t.verdict.Bad, text) {
		t.verdict.Bad = append(t.verdict.Bad, text)
	}
}
