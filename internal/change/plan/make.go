package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/verify"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// Make plans a change, or returns a *Refusal. Findings are kept in the plan for the reader; whether they
// stop the change is decided before a plan is asked for.
func Make(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, findings []finding.Finding,
	options Options) (*Plan, error) {
	if _, err := signal.ParseAll(change.SLO); err != nil {
		return nil, kind.Refuse("write it as "+signal.Form, "a signal of slo cannot be used: %v", err)
	}
	request := &kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers, Findings: findings, Options: options}
	k := asked(request)
	if err := alone(k, request); err != nil {
		return nil, err
	}
	draft, err := k.Make(request)
	if err != nil {
		return nil, err
	}
	draft.Learnt = options.Learnt
	p, err := Seal(snapshot, draft)
	if err == nil {
		err = verify.KeepsSecrets(snapshot, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Seal completes a plan that has its steps: what its gates hold besides, its estimate, a name where it has none, its
// hash; and verifies it.
func Seal(snapshot *cluster.Snapshot, draft *kind.Draft) (*Plan, error) {
	p := draft.Plan
	for _, network := range []*cni.Installation{&p.Source, &p.Target} { // checks alone read these, from a snapshot
		network.Readings, network.Used = nil, nil
	}
	if !of(p).Complete {
		narrow(p)
		if draft.Learnt.Steps(p.Steps, len(p.Cluster.Nodes), draft.Pods); draft.Learnt != nil {
			p.EstimatedFrom = draft.Learnt.Runs
		}
	}
	if err := divide(p); err != nil {
		return nil, err
	}
	if !of(p).Complete {
		if err := holdSessions(snapshot, p); err != nil {
			return nil, err
		}
	}
	if p.Parallel.Nodes == 0 {
		p.Parallel = parallel(snapshot, p, draft.Pods)
	}
	for _, s := range p.Steps {
		p.Estimate += s.Estimate
	}
	if p.Name == "" {
		p.Name = draft.Stem + "-" + suffix(p)
	}
	p.Hash = Hash(p)
	if err := Verify(p); err != nil {
		return nil, fmt.Errorf("the plan that was made breaks a rule, which is a bug of Theseus: %w", err)
	}
	return p, nil
}

// suffix tells migrations of one cluster apart.
func suffix(p *Plan) string {
	sum := sha256.Sum256([]byte(p.Cluster.UID + p.Cluster.Fingerprint + p.Change.To + p.Change.PodCIDR +
		p.MadeAt.Format(time.RFC3339)))
	return hex.EncodeToString(sum[:3])
}

// Hash is a plan's identity: the SHA-256, in hex, of its canonical form without the hash itself. Whatever the order of
// keys, a plan that was written and read again has the same.
func Hash(p *Plan) string {
	hash, err := identity(p)
	if err != nil {
		return "unhashable: " + err.Error()
	}
	return hash
}

func identity(p *Plan) (string, error) {
	bare := *p
	bare.Hash, bare.Steps = "", nil
	var err error
	if bare.Findings, err = asRead(p.Findings); err != nil {
		return "", err
	}
	return canonical.Hash(func(yield func(any) bool) {
		more := yield(bare)
		for i := 0; more && i < len(p.Steps); i++ {
			more = yield(listed(&p.Steps[i]))
		}
	})
}

// listed is a step whose actions are hashed one by one: a step of a large cluster has thousands.
func listed(s *step.Step) canonical.Listed {
	bare, lists := *s, map[string]iter.Seq[any]{}
	bare.Actions, bare.Undo = nil, nil
	for key, actions := range map[string][]step.Action{"actions": s.Actions, "undo": s.Undo} {
		if len(actions) == 0 {
			continue
		}
		lists[key] = func(yield func(any) bool) {
			for i := range actions {
				if !yield(actions[i].Document()) {
					return
				}
			}
		}
	}
	if len(s.Actions) == 0 {
		bare.Actions = s.Actions // nothing, or an empty list
	}
	return canonical.Listed{Object: bare.Document(), Lists: lists}
}

// asRead are findings as they are read back from a file: what one rests on may be of any type, and comes back as a more
// general one.
func asRead(findings []finding.Finding) (read []finding.Finding, err error) {
	data, err := json.Marshal(findings)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	return read, err
}
