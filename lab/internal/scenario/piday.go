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
	// look is how long a cluster is watched after the label was removed: longer than the three readiness probes,
	// 10 s apart, that must fail before a pod of calico-node is not Ready.
	look = 35 * time.Second
	// converge is how long BGP may take to announce all routes.
	converge = 2 * time.Minute
	// blocked is the exit code of a check with blocking findings.
	blocked = 3
	// before24 is the version that the lab's cluster pretends to have.
	before24 = "v1.23.17"
)

// Finding is one finding of theseus check.
type Finding struct {
	ID, Severity, Message, Fix string
	Subject                    struct{ Kind, Name string }
}

// Story has the results of Pi-Day, without Theseus and with it.
type Story struct {
	Masters         []string // nodes with the label
	Healthy, Outage View     // without Theseus, before and after the label was removed, with the requests between
	Refused         []Finding
	Commands        []string // of the fix
	// with its fix, before and after the label was removed, with the requests since before the fix
	Repaired, Upgrade View
}

// PiDay reproduces the outage of 14 March 2023 on a cluster with the same setup, lets Theseus refuse the change before
// it, applies the fix that Theseus prints, and makes the change.
func PiDay(ctx context.Context, r *Rig) (*Story, error) {
	s := &Story{}
	for n, name := range r.NodeNames() {
		if labels, _ := network.NodeMarks(network.CalicoBGP, n+1); labels != nil {
			s.Masters = append(s.Masters, name)
		}
	}
	if len(s.Masters) == r.Nodes {
		return s, fmt.Errorf("%d nodes are too few: the first %d of them reflect routes for others",
			r.Nodes, len(s.Masters))
	}
	r.Say("a cluster of %d nodes on Calico: BIRD, no encapsulation, no mesh, route reflectors picked by %s",
		r.Nodes, network.MasterLabel)
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

// outage reproduces the outage, and a way back that Reddit did not have.
func (r *Rig) outage(ctx context.Context, s *Story) error {
	r.Say("without Theseus: the upgrade to 1.24 removes the label from every control plane node")
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
		return fmt.Errorf("the outage did not happen: %d routes are left, %d requests failed",
			s.Outage.Routes, s.Outage.Failed)
	}
	r.Say("what Theseus finds, from BIRD's state on every node")
	seen, err := r.look(ctx)
	if err != nil {
		return err
	}
	if err := r.refused(ctx, seen...); err != nil {
		return err
	}
	r.Say("the label is restored")
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

// look takes a snapshot with facts of every node, and returns the command that checks BIRD's sessions in it.
func (r *Rig) look(ctx context.Context) ([]string, error) {
	file := filepath.Join(r.Dir, "nodes.json")
	_, err := r.Run(ctx, "snapshot", "--nodes", "--agent-image", AgentImage, "-o", file)
	return []string{"check", "--from", file, "--only", "bgp/sessions-down"}, err
}

// refusal runs Theseus' checks before the change.
func (r *Rig) refusal(ctx context.Context, s *Story) error {
	r.Say("with Theseus: what would the upgrade do? (the lab's Kubernetes is newer; in the snapshot it is called %s)",
		before24)
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
		return fmt.Errorf("with -o json, theseus exits with %d: %v", exitCode(err), err)
	}
	var result struct{ Findings []Finding }
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return fmt.Errorf("the findings of theseus: %w", err)
	}
	s.Refused = result.Findings
	r.Say("and on the cluster itself, without the label?")
	return r.refused(ctx, "check", "--remove-label", network.MasterLabel, "--only", "bgp")
}

// refused runs theseus, which must have blocking findings.
func (r *Rig) refused(ctx context.Context, args ...string) error {
	_, err := r.Run(ctx, args...)
	switch exitCode(err) {
	case 0:
		return fmt.Errorf("theseus %s has no blocking findings", strings.Join(args, " "))
	case blocked:
		return nil
	}
	return err
}

// upgrade applies the fix literally, and makes the change.
func (r *Rig) upgrade(ctx context.Context, s *Story) error {
	since, err := r.Count(ctx)
	if err != nil {
		return err
	}
	r.Say("the fix from the findings")
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
	now, err := r.Steady(steady) // requests in flight count too
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

// unlabel removes the label from the masters, as kubeadm does, and views the cluster before and after, while it reports
// to be healthy.
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

// converged waits until every node has a route to every other node, and the clients' requests succeed again.
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
			return fmt.Errorf("only %d routes were announced: %w", routes, ctx.Err())
		case <-time.After(time.Second):
		}
	}
	_, err := r.Steady(ctx)
	return err
}

// snapshot writes a snapshot of the cluster with the version that still had the label.
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

// version matches the versions of Kubernetes and its kubelets in a snapshot.
var version = regexp.MustCompile(`("(?:kubernetes|kubeletVersion|kubeProxyVersion)": *)"v[0-9.]+"`)

// shell runs a command line against the lab, as a person would paste it.
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

// exitCode is the exit code of the program in an error, 0 without an error, and -1 without a program.
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
