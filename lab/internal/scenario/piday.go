package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
)

const (
	// look is how long a cluster is watched after the label is gone: longer than the three readiness probes,
	// 10 s apart, that must fail before a pod of calico-node is not Ready.
	look = 35 * time.Second
	// converge is how long BGP may take to tell all routes.
	converge = 2 * time.Minute
	// blocked is the exit code of a check that something blocks.
	blocked = 3
	// before24 is a version that the lab's cluster takes the place of.
	before24 = "v1.23.17"
)

// Finding is one finding of theseus check.
type Finding struct {
	ID, Severity, Message, Fix string
	Subject                    struct{ Kind, Name string }
}

// Story is what happened on Pi-Day, twice.
type Story struct {
	Masters           []string // nodes that carry the label
	Healthy, Outage   View     // without Theseus, before the label went and after, with the requests between
	Refused           []Finding
	Commands          []string // of the fix
	Repaired, Upgrade View     // with its fix, before the label went and after, with the requests since before the fix
}

// PiDay plays the outage of 14 March 2023 on a cluster of the same make, lets Theseus refuse the change before
// it, applies the fix that it gives, and makes the change.
func PiDay(ctx context.Context, r *Rig) (*Story, error) {
	s := &Story{}
	for n, name := range r.NodeNames() {
		if labels, _ := network.NodeMarks(network.CalicoBGP, n+1); labels != nil {
			s.Masters = append(s.Masters, name)
		}
	}
	if len(s.Masters) == r.Nodes {
		return s, fmt.Errorf("%d nodes are too few: the first %d of them reflect routes for others", r.Nodes, len(s.Masters))
	}
	r.Say("a cluster of %d nodes on Calico: BIRD, no encapsulation, no mesh, route reflectors picked by %s", r.Nodes, network.MasterLabel)
	if err := r.Up(ctx, network.CalicoBGP); err != nil {
		return s, err
	}
	if err := r.Traffic(ctx); err != nil {
		return s, err
	}
	if err := r.outage(ctx, s); err != nil {
		return s, err
	}
	if err := r.refusal(ctx, s); err != nil {
		return s, err
	}
	return s, r.upgrade(ctx, s)
}

// outage is the day as it was, and the way back that Reddit did not have.
func (r *Rig) outage(ctx context.Context, s *Story) error {
	r.Say("without Theseus: the upgrade to 1.24 takes the label off every control plane")
	since, err := r.Count(ctx)
	if err != nil {
		return err
	}
	if s.Healthy, s.Outage, err = r.unlabel(ctx, s.Masters); err != nil {
		return err
	}
	now, err := r.Count(ctx)
	if err != nil {
		return err
	}
	s.Outage.count(since, now)
	if err := r.compare(s.Healthy, s.Outage); err != nil {
		return err
	}
	if s.Outage.Routes != 0 || s.Outage.Failed == 0 {
		return fmt.Errorf("the outage did not happen: %d routes are left, %d requests failed", s.Outage.Routes, s.Outage.Failed)
	}
	r.Say("what Theseus sees of it, by what BIRD says on every node")
	seen, err := r.look(ctx)
	if err != nil {
		return err
	}
	if err := r.refused(ctx, seen...); err != nil {
		return err
	}
	r.Say("the label is put back")
	if err := r.label(ctx, s.Masters, network.MasterLabel+"="); err != nil {
		return err
	}
	if err := r.converged(ctx); err != nil {
		return err
	}
	if seen, err = r.look(ctx); err != nil {
		return err
	}
	_, err = r.Run(ctx, seen...)
	return err
}

// look has Theseus' agent look at every node, and returns the command that judges BIRD's sessions by that.
func (r *Rig) look(ctx context.Context) ([]string, error) {
	file := filepath.Join(r.Dir, "nodes.json")
	_, err := r.Run(ctx, "snapshot", "--nodes", "--agent-image", AgentImage, "-o", file)
	return []string{"check", "--from", file, "--only", "bgp/sessions-down"}, err
}

// refusal asks Theseus before the change.
func (r *Rig) refusal(ctx context.Context, s *Story) error {
	r.Say("with Theseus: what would the upgrade do? (the lab's Kubernetes is newer; in the snapshot it is called %s)", before24)
	file, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	ask := []string{"check", "--from", file, "--kubernetes-to", "v1.24.0"}
	started := time.Now()
	if err := r.refused(ctx, ask...); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "exit %d after %d ms\n", blocked, time.Since(started).Milliseconds())
	text, err := r.run(ctx, nil, nil, r.Theseus, append(ask, "-o", "json")...)
	if exitCode(err) != blocked {
		return fmt.Errorf("the same as JSON ends with %d: %v", exitCode(err), err)
	}
	var result struct{ Findings []Finding }
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return fmt.Errorf("what theseus found: %w", err)
	}
	s.Refused = result.Findings
	r.Say("and on the cluster itself, without the label?")
	return r.refused(ctx, "check", "--remove-label", network.MasterLabel, "--only", "bgp")
}

// refused runs theseus, which is to find that something blocks.
func (r *Rig) refused(ctx context.Context, args ...string) error {
	_, err := r.Run(ctx, args...)
	switch exitCode(err) {
	case 0:
		return fmt.Errorf("theseus %s finds nothing that blocks", strings.Join(args, " "))
	case blocked:
		return nil
	}
	return err
}

// upgrade applies the fix, word by word, and makes the change.
func (r *Rig) upgrade(ctx context.Context, s *Story) error {
	since, err := r.Count(ctx)
	if err != nil {
		return err
	}
	r.Say("the fix, as the findings give it")
	for _, f := range s.Refused {
		if f.ID != "bgp/peer-selector-empty" || f.Severity != "block" {
			continue
		}
		s.Commands = append(s.Commands, f.Fix)
		fmt.Fprintf(r.Out, "$ %s\n", f.Fix)
		if err := r.shell(ctx, f.Fix); err != nil {
			return err
		}
	}
	file, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	if _, err := r.Run(ctx, "check", "--from", file, "--kubernetes-to", "v1.24.0", "--only", "bgp"); err != nil {
		return fmt.Errorf("with its own fix, theseus still refuses the upgrade: %w", err)
	}
	r.Say("the same change again")
	if s.Repaired, s.Upgrade, err = r.unlabel(ctx, s.Masters); err != nil {
		return err
	}
	steady, cancel := context.WithTimeout(ctx, converge)
	defer cancel()
	now, err := r.Steady(steady) // what is under way counts too
	if err != nil {
		return err
	}
	s.Upgrade.count(since, now)
	if err := r.compare(s.Repaired, s.Upgrade); err != nil {
		return err
	}
	if s.Upgrade.Failed > 0 || s.Upgrade.Intruding > 0 {
		return &LossError{Failed: s.Upgrade.Failed, Leaked: s.Upgrade.Intruding}
	}
	return nil
}

// unlabel takes the label off the masters, as kubeadm does, and looks at the cluster before and after, when it says that it is well.
func (r *Rig) unlabel(ctx context.Context, masters []string) (before, after View, err error) {
	if before, err = r.settled(ctx); err != nil {
		return before, after, err
	}
	if err := r.label(ctx, masters, network.MasterLabel+"-"); err != nil {
		return before, after, err
	}
	select {
	case <-ctx.Done():
		return before, after, ctx.Err()
	case <-time.After(look):
	}
	after, err = r.settled(ctx)
	return before, after, err
}

// label changes a label of nodes.
func (r *Rig) label(ctx context.Context, nodes []string, change string) error {
	args := slices.Concat([]string{"label", "nodes"}, nodes, []string{change})
	fmt.Fprintf(r.Out, "$ kubectl %s\n", strings.Join(args, " "))
	_, err := r.Kubectl(ctx, nil, args...)
	return err
}

// converged waits until every node has a route to every other one, and the clients are served again.
func (r *Rig) converged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, converge)
	defer cancel()
	for {
		routes, err := r.birdRoutes(ctx)
		if err != nil {
			return err
		}
		if routes >= r.Nodes*(r.Nodes-1) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("only %d routes came: %w", routes, ctx.Err())
		case <-time.After(time.Second):
		}
	}
	_, err := r.Steady(ctx)
	return err
}

// snapshot writes a snapshot of the cluster in which it runs the version that had the label.
func (r *Rig) snapshot(ctx context.Context) (string, error) {
	file := filepath.Join(r.Dir, "snapshot.json")
	if _, err := r.Run(ctx, "snapshot", "-o", file); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, version.ReplaceAll(text, []byte(`$1"`+before24+`"`)), 0o600)
}

// version are the versions of Kubernetes and its kubelets in a snapshot.
var version = regexp.MustCompile(`("(?:kubernetes|kubeletVersion|kubeProxyVersion)": *)"v[0-9.]+"`)

// shell runs a command line against the lab, as a person does that pastes it.
func (r *Rig) shell(ctx context.Context, line string) error {
	bin, err := filepath.Abs(filepath.Join(r.Dir, "bin"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %q kubectl --name %q \"$@\"\n", r.Lab, r.Name)
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o755); err != nil {
		return err
	}
	_, err = r.run(ctx, nil, r.Out, "env", "PATH="+bin+":"+os.Getenv("PATH"), "sh", "-euc", line)
	return err
}

// exitCode is that of the program behind an error, 0 for none, and -1 when there was no program.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
