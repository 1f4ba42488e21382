package replace

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// propose plans another network in the place of the one that is there, or returns a *kind.Refusal.
func propose(r *kind.Request) (*kind.Draft, error) {
	snapshot, drivers, options := r.Snapshot, r.Drivers, r.Options
	if err := surge.Unasked(r.Change); err != nil {
		return nil, err
	}
	change, instead, err := choose(snapshot, r.Change, drivers, options.Manifest)
	if err != nil {
		return nil, err
	}
	driver, err := wanted(change, drivers, options.Manifest)
	if err != nil {
		return nil, err
	}
	source, err := kind.InPlace(snapshot, drivers)
	if err != nil {
		return nil, err
	}
	if err := kind.NodesReady(snapshot, source); err != nil {
		return nil, err
	}
	var replaced *kind.Surge
	var waves []joint.Wave
	if change.Strategy == surge.Name {
		replaced, waves, err = surge.Replacing(snapshot, change)
	} else {
		waves, err = kind.CountedWaves(snapshot, change)
	}
	if err != nil {
		return nil, err
	}
	target, outlook, err := bring(snapshot, change, driver, source, waves, options.Manifest)
	if err != nil {
		return nil, err
	}
	if err := encrypted(source, target); err != nil {
		return nil, err
	}
	if err := housed(snapshot, target); err != nil {
		return nil, err
	}
	if err := dispensable(source, target); err != nil {
		return nil, err
	}
	if err := kind.Movable(outlook, source); err != nil {
		return nil, err
	}
	from, _ := drivers.Get(source.CNI)
	in := joint.Input{
		Snapshot: snapshot, Source: source, Target: target, Change: change, Waves: waves, Outlook: outlook,
		SourceResidue: from.Residue(source), TargetResidue: driver.Residue(&target.Installation),
	}
	strategy, why, steps := recreate.Name, reason(source, target), recreate.Steps
	if instead != "" {
		why = "pods cannot be adopted (" + instead + "), so every pod is recreated; " + why
	}
	if change.Strategy == adopt.Name {
		strategy, why, steps = adopt.Name, adoptReason(source, target), adopt.Steps
	}
	if replaced != nil {
		strategy, why, steps = surge.Name, surge.Reason, surge.StepsOf(replaced, change)
		outlook.Workloads = surge.OfDaemons(outlook.Workloads)
	}
	p := kind.Begin(snapshot, change, options, strategy, why)
	p.Source, p.Target, p.Waves = *source, target.Installation, kind.WavesOf(waves)
	p.Steps, p.Workloads, p.Findings, p.Surge = steps(in), kind.WorkloadsOf(outlook.Workloads), r.Findings, replaced
	return &kind.Draft{Plan: p, Stem: source.CNI + "-to-" + change.To, Pods: outlook.PerNode}, nil
}

func reason(source *cni.Installation, target *cni.Target) string {
	return fmt.Sprintf("%s and %s have different ranges, interfaces and tunnels, so both can run on "+
		"every node while the pods move",
		source.Title(), target.Installation.Title())
}

func adoptReason(source *cni.Installation, target *cni.Target) string {
	return fmt.Sprintf("running pods can move from %s to %s, because %s assigns requested addresses and neither "+
		"network touches the other's interfaces",
		source.Title(), target.Installation.Title(), target.Installation.Title())
}

// bring prepares the network to come, and says what happens to pods.
func bring(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, driver cni.Driver,
	source *cni.Installation, waves []joint.Wave,
	manifest []unstructured.Unstructured) (*cni.Target, joint.Outlook, error) {
	var outlook joint.Outlook
	if change.Strategy == adopt.Name {
		comes, err := adoptable(snapshot, driver, source, manifest)
		if err != nil {
			return nil, outlook, err
		}
		outlook = joint.Survey(snapshot, source.PodCIDRs, waves,
			adoption.Unfit(snapshot, source.Capabilities.Flat, comes.Orders))
		if clash := adopt.Unadoptable(*source, outlook); clash != "" {
			return nil, outlook, unadoptable(joint.RecreateHint(snapshot, *source, cni.Installation{}), clash)
		}
	} else {
		outlook = joint.Survey(snapshot, source.PodCIDRs, waves, nil)
	}
	target, err := driver.Install(request(snapshot, change, source, outlook, manifest))
	if refused, ok := errors.AsType[*kind.Refusal](err); ok {
		return nil, outlook, refused
	}
	if err != nil {
		return nil, outlook, fmt.Errorf("install %s: %w", driver.Name(), err)
	}
	if source.Cession != nil { // the manifest's CRDs take the place of those of objects that are in use
		if err := cni.Lossless(target.Definitions, snapshot.Other); err != nil {
			return nil, outlook, err
		}
	}
	if want, have := change.CNIVersion, target.Installation.Version; want != "" && want != have {
		return nil, outlook, kind.Refuse("give the manifest of the version that you want",
			"the manifest installs %s %s, not %s", change.To, have, want)
	}
	if change.Strategy == adopt.Name && (target.Adoption == nil || target.Installation.Capabilities.Attachment == nil) {
		return nil, outlook, unadoptable(joint.RecreateHint(snapshot, *source, target.Installation),
			"no run has ever moved running pods to "+change.To)
	}
	for _, clash := range slices.Concat(joint.Unranged(snapshot, target.Installation),
		joint.Clashes(*source, target.Installation), joint.TooOld(snapshot, target.Installation)) {
		if change.Strategy == adopt.Name && clash.ID == "overlap" {
			continue // the range is the same on purpose
		}
		return nil, outlook, kind.Refuse(clash.Hint, "%s", clash.Message)
	}
	if target.Conf.Active >= source.Capabilities.ConfName {
		return nil, outlook, kind.Refuse("rename the source's file so that it sorts later",
			"the target's CNI configuration %s would not be read before the source's %s",
			target.Conf.Active, source.Capabilities.ConfName)
	}
	return target, outlook, nil
}

// request is what a driver is asked for by a change.
func request(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, source *cni.Installation, outlook joint.Outlook,
	manifest []unstructured.Unstructured) cni.Request {
	request := cni.Request{Manifest: manifest, PodCIDR: change.PodCIDR, Source: source, NodeLabel: v1alpha1.LabelTarget,
		Defined: snapshot.Definitions()}
	if change.Strategy != adopt.Name || len(source.PodCIDRs) == 0 {
		return request
	}
	request.PodCIDR = source.PodCIDRs[0]
	bits, _ := adopt.NodeBits(snapshot, *source) // an error is a clash
	request.Takeover = &cni.Takeover{NodeBits: bits, Reserved: adopt.Reserved(snapshot, *source, outlook)}
	return request
}

func wanted(change v1alpha1.ChangeSpec, drivers cni.Registry,
	manifest []unstructured.Unstructured) (cni.Driver, error) {
	driver, ok := drivers.Get(change.To)
	if !ok && change.To != "" {
		return nil, kind.Unknown(change.To, drivers)
	}
	if err := named(change, manifest); err != nil {
		return nil, err
	}
	if change.Strategy != adopt.Name && change.PodCIDR == "" {
		return nil, kind.Refuse("set --pod-cidr to a free range, such as 10.200.0.0/16",
			"no range for the pods of %s is given", change.To)
	}
	if err := kind.AgentGiven(change); err != nil {
		return nil, err
	}
	return driver, nil
}

// unadoptable refuses to adopt pods; hint, of joint.RecreateHint, tells whether they can be created again.
func unadoptable(hint, message string) error {
	return &kind.Refusal{Message: message, Hint: hint, Recreate: true}
}
