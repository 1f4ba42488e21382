package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// scrubTries is how often the tables are read again if another program changes them while they are scrubbed.
const scrubTries = 3

// Objects that cannot be removed are tried again every cleanPause, for cleanWait.
const (
	cleanPause = 300 * time.Millisecond
	cleanWait  = 20 * time.Second
)

// clean removes a residue and answers with what is left of it, which should be nothing. While the network is
// in use it removes nothing at all. Once begun it goes on after a failure, so that one thing that resists
// does not keep the rest.
func (n *Node) clean(ctx context.Context, residue step.Residue) (Answer, error) {
	before, err := n.find(ctx, residue)
	if err != nil {
		return Answer{}, err
	}
	if before.Count() == 0 {
		return answer(false, "clean already", step.Inventory{Node: n.Name})
	}
	if err := errors.Join(n.networks(before), n.unused(ctx, before)); err != nil {
		refused, encoding := answer(false, "", step.Inventory{Node: n.Name, Found: before})
		return refused, errors.Join(err, encoding)
	}
	left, failed, err := n.removeUntilGone(ctx, residue, before)
	if err != nil {
		return Answer{}, errors.Join(failed, err)
	}
	message := fmt.Sprintf("%d removed, %d left", before.Count()-left.Count(), left.Count())
	done, err := answer(true, message, step.Inventory{Node: n.Name, Found: left})
	if left.Count() > 0 && failed == nil {
		failed = fmt.Errorf("another program restores it: %s", named(left))
	}
	if left.Count() == 0 {
		failed = nil // whatever failed on the way is gone all the same
	}
	return done, errors.Join(err, failed)
}

// removeUntilGone removes until nothing is found any more, or cleanWait is over: the kernel lets go of a set or
// a link some time after the last rule that used it is gone, and an agent that is ending may write once more.
func (n *Node) removeUntilGone(ctx context.Context, residue, found step.Residue) (left step.Residue,
	failed, err error) {
	for deadline := time.Now().Add(cmp.Or(n.patience, cleanWait)); ; {
		failed = n.removeAll(ctx, residue, found)
		if found, err = n.find(ctx, residue); err != nil || found.Count() == 0 || time.Now().After(deadline) {
			return found, failed, err
		}
		select {
		case <-ctx.Done():
			return found, failed, ctx.Err()
		case <-time.After(cleanPause):
		}
	}
}

// named lists what is in a residue.
func named(r step.Residue) string {
	return strings.Join(slices.Concat(r.Links, r.Chains, r.RuleComments, r.RuleLinks, r.RuleSets,
		r.NFTables, r.IPSets, r.Routes, r.Rules, r.ConfFiles, r.Binaries, r.Paths), ", ")
}

// removeAll removes in an order in which nothing is in use any more when its turn comes: configuration
// first, so that no new pod gets the network; rules before the sets that they match on; links before
// routes, of which most go with them.
func (n *Node) removeAll(ctx context.Context, residue, found step.Residue) error {
	within, err := prefixes(residue.Routes)
	if err != nil {
		return err
	}
	errs := []error{n.removeConf(found.ConfFiles)}
	for _, b := range backends() {
		errs = append(errs, n.scrub(ctx, b, residue))
	}
	for _, name := range found.NFTables {
		kind, table, _ := strings.Cut(name, " ")
		errs = append(errs, n.removeTable(ctx, kind, table))
	}
	for _, name := range found.IPSets {
		_, err := n.Commands.run(ctx, "", "ipset", "destroy", name)
		errs = append(errs, err)
	}
	for _, name := range found.Links {
		errs = append(errs, removeLink(name))
	}
	errs = append(errs, removeRoutes(within), removePolicy(found.Rules))
	told, err := n.folders()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	var files []string
	for _, name := range found.Binaries {
		for _, folder := range told.plugins {
			files = append(files, path.Join(folder, name))
		}
	}
	errs = append(errs, n.remove(append(files, found.Paths...)))
	return errors.Join(errs...)
}

// unused makes sure that no pod is attached to a bridge that will be removed, and that the runtime keeps a network
// configuration to serve from.
func (n *Node) unused(ctx context.Context, found step.Residue) error {
	serving, err := n.confFiles()
	if err != nil {
		return err
	}
	if len(serving) > 0 && len(step.Pick(found.ConfFiles, serving)) == len(serving) {
		return fmt.Errorf("%s is the node's only network configuration", strings.Join(serving, ", "))
	}
	for _, name := range found.Links {
		if err := waitUnused(ctx, name, found.Links, cmp.Or(n.patience, portsWait)); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) removeConf(names []string) error {
	if len(names) == 0 {
		return nil
	}
	told, err := n.folders()
	if err != nil {
		return err
	}
	var files []string
	for _, name := range names {
		files = append(files, path.Join(told.conf, name))
	}
	if err := n.remove(files); err != nil {
		return err
	}
	return syncDir(filepath.Join(n.Root, told.conf))
}

// scrub takes the residue out of one backend. Another writer may change a rule between reading and writing;
// the kernel then refuses the whole table, and it is read again.
func (n *Node) scrub(ctx context.Context, b backend, residue step.Residue) error {
	var refused error
	for range scrubTries {
		tables, err := n.save(ctx, b)
		if err != nil {
			return err
		}
		script := scrub(tables, residue)
		if script == "" {
			return nil
		}
		if refused = n.restore(ctx, b, script); refused == nil {
			return nil
		}
	}
	return refused
}

// kernel is the running kernel's release.
func (n *Node) kernel() (string, error) {
	text, err := os.ReadFile(filepath.Join(n.Sys, "kernel/osrelease"))
	if err != nil {
		return "", fmt.Errorf("read the kernel's release: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
