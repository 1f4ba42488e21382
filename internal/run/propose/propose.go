// Package propose turns a cluster and a change into findings and a plan. It is pure: the command line and the
// controller read the cluster, the manifest and the registry, and decide what to do about findings that block. It also
// learns from the journals of earlier runs how long a plan will take.
package propose

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Input is what findings and a plan follow from.
type Input struct {
	Snapshot *cluster.Snapshot
	Change   v1alpha1.ChangeSpec
	// Manifest is the target's manifests, decoded.
	Manifest []unstructured.Unstructured
	// Served asks the registry of the agent's image; nil if the registry is not asked. It is called only for a change
	// that is possible.
	Served func() *check.Served
	// Options select and accept findings.
	Options preflight.Options
}

// Checked is a change with its evidence and findings.
type Checked struct {
	Pass   *check.Pass
	Result finding.Result
	// Refused is why the new network is not among the evidence; nil if it is, or if none is expected.
	Refused error
	// Unnamed is why no plan can be made of the change whatever the findings are: it does not name all that a plan
	// needs. nil if it does.
	Unnamed error
}

// Invalid is an error in the change itself, whatever the cluster.
type Invalid struct{ error }

func (i Invalid) Unwrap() error { return i.error }

// Options are a change's own options for the checks, at a time.
func Options(change v1alpha1.ChangeSpec, now time.Time) preflight.Options {
	return preflight.Options{Accept: change.Accept, Accepted: change.Accepted, Now: now}
}

// Check runs the checks. It returns an Invalid for options that name no check and for what-ifs that cannot be meant,
// and a *cni.Refusal for a change that is impossible on this cluster, whatever its owner accepts.
func Check(in Input) (Checked, error) {
	if err := in.Options.Validate(preflight.All()); err != nil {
		return Checked{}, Invalid{engine.WithHint(err, "theseus check --list")}
	}
	if err := plan.Possible(in.Snapshot, in.Change, drivers.All(), in.Manifest); err != nil {
		return Checked{}, err
	}
	chosen, why := plan.Chosen(in.Snapshot, in.Change, drivers.All(), in.Manifest)
	pass, refused := passOf(in.Snapshot, chosen, in.Manifest)
	if refused != nil && why != nil {
		refused = why // a new network needs a range for pods, and this says why
	}
	var err error
	if pass.WhatIf, err = whatif.Apply(in.Snapshot, in.Change); err != nil {
		return Checked{}, Invalid{engine.WithHint(err, "theseus check --help")}
	}
	if in.Served != nil {
		pass.Served = in.Served()
	}
	if refused != nil {
		pass.NoTarget = refused.Error()
	}
	unnamed := plan.Named(in.Snapshot, in.Change, drivers.All(), in.Manifest)
	return Checked{pass, preflight.Run(preflight.All(), pass, in.Options), refused, unnamed}, nil
}

// passOf is the evidence for checks: the snapshot, and the two networks as far as they are known. The error says why
// the new one is not: checks do without it then.
func passOf(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec,
	manifest []unstructured.Unstructured) (*check.Pass, error) {
	pass := &check.Pass{Snapshot: snapshot, Change: change, Found: drivers.All().Detect(snapshot), Manifest: manifest}
	if len(pass.Found) > 0 {
		pass.Source = pass.Found[0]
	}
	if pass.Source == nil {
		return pass, nil
	}
	target, err := plan.Comes(snapshot, change, drivers.All(), pass.Source, manifest)
	pass.Target = target
	return pass, err
}

// Plan makes the plan of a change that was checked. The change is the one that was asked for: it may differ from that
// of the checks by what was found out since, such as the digest of the agent's image. The caller has decided about
// findings that block.
func Plan(checked Checked, change v1alpha1.ChangeSpec, options plan.Options) (*plan.Plan, error) {
	options.Manifest = checked.Pass.Manifest
	return plan.Make(checked.Pass.Snapshot, change, drivers.All(), checked.Result.Findings, options)
}

// Planned runs the checks that look at the steps of a plan, and adds what they find to the change and to the plan. It
// returns the findings of these checks alone; the caller decides about those that block. The evidence has to have the
// objects that the steps write (kube.AddWritten).
func Planned(checked *Checked, p *plan.Plan, options preflight.Options) (fresh finding.Result) {
	checked.Pass.Steps = p.Steps
	checked.Result, fresh = preflight.Planned(checked.Result, checked.Pass, options)
	if len(fresh.Findings) > 0 {
		p.Findings = append(slices.Clone(p.Findings), fresh.Findings...)
		p.Hash = plan.Hash(p)
	}
	return fresh
}

// Rights is the check of permissions alone. Its evidence has to have the answers for the steps of a plan
// (admission.AskRights).
func Rights(pass *check.Pass, options preflight.Options) finding.Result {
	return preflight.Run(preflight.Named(CheckOfRights), pass, options)
}

// CheckOfRights is the ID of the check of permissions.
const CheckOfRights = "api/rights"

// NoSecrets refuses manifests with a secret in them: the plan and the journal would contain it. Everyone who may read
// Migrations can read those, and they are not encrypted as Secrets are.
func NoSecrets(objects []unstructured.Unstructured) error {
	for i := range objects {
		object := &objects[i]
		if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
			return engine.WithHint(fmt.Errorf("the manifest has the Secret %s/%s",
				object.GetNamespace(), object.GetName()),
				"apply the Secret yourself first, and remove it from the manifest: the plan and the "+
					"journal would contain its data")
		}
		if object.GetKind() == "CustomResourceDefinition" {
			continue // its schema has names of fields, but no values
		}
		if found := cluster.Secrets(object.Object); len(found) > 0 {
			return engine.WithHint(fmt.Errorf("the manifest: %s has a password or token in %s",
				step.RefOf(object), found[0]),
				"take the value from a Secret (valueFrom.secretKeyRef, or the kind's own reference): the plan and "+
					"the journal would contain it")
		}
	}
	return nil
}

// HintOf is what a person can do about an error of this package; "" if that is not known.
func HintOf(err error) string {
	if refusal, ok := errors.AsType[*cni.Refusal](err); ok {
		return refusal.Hint
	}
	return engine.HintOf(err)
}
