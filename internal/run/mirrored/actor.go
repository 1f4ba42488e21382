package mirrored

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

// Actor does the actions of a plan of the strategy mirror, each with the package that knows how.
type Actor struct {
	World *World
	Names *dns.Actor
	Twins *replica.Actor
	// Own is for the original's nodes.
	Own     engine.Actor
	Records engine.Journal
	Dir     string
	Note    func(string)
}

// New makes the actor and the gate of a plan with a mirror. own are those for the original's nodes; dir is the folder
// of the run on this machine.
func New(p *World, own engine.Deps, records engine.Journal, dir string,
	note func(string)) (engine.Actor, engine.Gate, error) {
	prober, err := p.Config.Prober()
	if err != nil {
		return nil, nil, err
	}
	h := &Actor{World: p, Own: own.Actor, Records: records, Dir: dir, Note: note,
		Names: &dns.Actor{Zones: p.Zones, Resolvers: p.Config.Resolvers, Prober: prober,
			Clock: run.Clock{}, Note: note},
		Twins: &replica.Actor{Original: p.Original, Mirror: p.Mirror, Note: note}}
	return h, &holdGate{Gate: dns.Gate{Prober: prober, Clock: run.Clock{}}, own: own.Gate,
		whole: p.whole, note: note}, nil
}

func (h *Actor) of(action step.Action) engine.Actor {
	switch action.Do.(type) {
	case step.DNS:
		return h.Names
	case step.Mirror:
		return h.Twins
	}
	return h.Own
}

// Observe implements engine.Actor.
func (h *Actor) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	if action.Op() != step.OpMirror {
		return h.of(action).Observe(ctx, action, before)
	}
	switch action.Verb() {
	case mirror.Change:
		why, err := h.World.whole(ctx, h.World.Plan.Mirror.Switch.To)
		return engine.Observation{Done: err == nil && why == "" && h.World.Plan.Mirror.Switch.To != ""}, nil
	case mirror.AddNames:
		return h.certificates(ctx, action)
	case mirror.Cloud:
		return h.cloud(ctx, action)
	}
	return h.Twins.Observe(ctx, action, before)
}

// Do implements engine.Actor.
func (h *Actor) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	if do, is := action.Do.(step.Mirror); is {
		switch do.Verb {
		case mirror.Change:
			return nil, h.change(ctx)
		case mirror.Roll:
			return nil, h.roll(ctx)
		case mirror.Handshakes:
			return nil, h.handshakes(ctx)
		case mirror.AddNames:
			return nil, h.addNames(ctx, action)
		case mirror.TakeNames:
			return nil, h.takeNames(ctx, action)
		case mirror.Cloud:
			return nil, h.doCloud(ctx, action)
		}
	}
	return h.of(action).Do(ctx, action, before)
}

// Holds implements engine.Actor.
func (h *Actor) Holds(ctx context.Context, c step.Condition) (bool, string, error) {
	return h.Own.Holds(ctx, c)
}

// change runs the command that changes the original; without one, a person changes it.
func (h *Actor) change(ctx context.Context) error {
	line := h.World.Plan.Mirror.Switch.Command
	if line == "" {
		h.Note("the original is idle: change its network to " + h.World.Plan.Mirror.Switch.To)
		return nil
	}
	var env []string
	if config := h.World.Plan.Mirror.Switch.Config; config != nil {
		name := filepath.Join(h.Dir, "original.yaml")
		if err := outfile.Write(name, []byte(config.Text)); err != nil {
			return err
		}
		env = append(env, mirror.ConfigVariable+"="+name)
	}
	return h.shell(ctx, line, env...)
}

// rollLook is the time between two polls of the original's nodes.
const rollLook = 5 * time.Second

// roll replaces nodes that stay NotReady, each once. If nodes are still NotReady then, the gate waits and fails.
func (h *Actor) roll(ctx context.Context) error {
	roll := h.World.Plan.Mirror.Switch
	for end := time.Now().Add(time.Duration(roll.RollAfter)); ; {
		sick, err := h.World.sick(ctx)
		if err != nil {
			return kube.Passing(err)
		}
		if len(sick) == 0 {
			return nil
		}
		if left := time.Until(end); left > 0 {
			h.Note(fmt.Sprintf("%s not Ready: %s", cluster.Count(len(sick), "node"),
				strings.Join(sick[:min(len(sick), 3)], ", ")))
			if err := (run.Clock{}).Sleep(ctx, min(left, rollLook)); err != nil {
				return err
			}
			continue
		}
		for _, node := range sick {
			h.Note("node " + node + " is not Ready after " + time.Duration(roll.RollAfter).String() +
				": replacing it once more")
			if err := h.shell(ctx, roll.Roll, mirror.NodeVariable+"="+node); err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
		}
		return nil
	}
}

// shell runs one of the user's commands with environment variables; its output goes to a file.
func (h *Actor) shell(ctx context.Context, line string, env ...string) error {
	log := filepath.Join(h.Dir, "change.log")
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	command := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	var tail lastLine
	command.Stdout, command.Stderr = file, &tail
	command.Env = append(append(os.Environ(), "THESEUS_MIGRATION="+h.World.Plan.Name), env...)
	command.WaitDelay = 10 * time.Second
	tail.to = file
	if err := command.Run(); err != nil {
		return engine.WithHint(fmt.Errorf("the command failed: %w: %s", err, tail.String()),
			"fix the command; its output is in "+log)
	}
	return nil
}

// lastLine keeps the last line that passes through it.
type lastLine struct {
	to   *os.File
	line []byte
}

const longestLine = 500

func (l *lastLine) Write(data []byte) (int, error) {
	if lines := bytes.Split(bytes.TrimSpace(data), []byte("\n")); len(lines[len(lines)-1]) > 0 {
		last := lines[len(lines)-1]
		l.line = slices.Clone(last[:min(len(last), longestLine)])
	}
	return l.to.Write(data)
}

func (l *lastLine) String() string { return string(l.line) }

// handshakes proves which certificates the mirror serves.
func (h *Actor) handshakes(ctx context.Context) error {
	args := h.World.Plan.Mirror.Handshakes
	proofs, err := h.World.prove(ctx, time.Duration(args.ValidFor))
	if err != nil {
		return err
	}
	var wrong []string
	for _, proof := range proofs {
		if len(proof.Wrong) > 0 {
			wrong = append(wrong,
				fmt.Sprintf("%s at %s: %s", proof.Name, proof.Address, strings.Join(proof.Wrong, ", ")))
		}
	}
	if len(wrong) > 0 {
		return engine.WithHint(fmt.Errorf("%d of %d handshakes failed: %s", len(wrong), len(proofs),
			strings.Join(wrong[:min(len(wrong), 3)], "; ")),
			"theseus mirror certs prove shows all of them")
	}
	h.Note(cluster.Count(len(proofs), "handshake") + " proven")
	return nil
}
