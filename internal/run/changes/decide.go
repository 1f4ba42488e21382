package changes

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// againEvery is the interval at which a Change without a plan is planned again, and at which a plan that is not
// approved is compared with the cluster. Changes of the spec or the manifest count at once.
const againEvery = 5 * time.Minute

// Situation is everything that the decision about one Change depends on.
type Situation struct {
	Change *v1alpha1.Change
	// Own is the Migration that was made for the Change, in any version: the one that has not ended, else the latest.
	// nil if there is none.
	Own *v1alpha1.Migration
	// Other is a Migration that was not made for the Change, and has not ended; nil if there is none.
	Other *v1alpha1.Migration
	// ManifestDigest is that of the manifests now; "" if the Change has none, or if they cannot be read.
	ManifestDigest string
	// Looked is what the last comparison with the cluster was about, and when; the zero value if there was none.
	Looked Looked
	Now    time.Time
}

// Looked is when the cluster was last read for a version of a Change.
type Looked struct {
	Generation     int64
	ManifestDigest string
	At             time.Time
}

// Do is what to do about a Change.
type Do string

// The decisions.
const (
	// Tell: write the status that follows from the Migration.
	Tell Do = "tell"
	// Wait: another migration has not ended.
	Wait Do = "wait"
	// Leave: it was planned in vain a short time ago, and its status says why.
	Leave Do = "leave"
	// Plan: make a plan.
	Plan Do = "plan"
	// Compare: find out whether the plan, which is not approved yet, still fits the cluster.
	Compare Do = "compare"
	// Replan: withdraw the Migration, which has not begun, and make another plan.
	Replan Do = "replan"
)

// Decision is what to do about a Change. Why is the reason for Replan, for people.
type Decision struct {
	Do     Do
	Reason string // one of the reasons of v1alpha1.ConditionPlanned
	Why    string
}

// Decide decides what to do about a Change. It is a pure function of the situation.
func Decide(s Situation) Decision {
	recent := s.Looked.Generation == s.Change.Generation && s.Looked.ManifestDigest == s.ManifestDigest &&
		s.Now.Sub(s.Looked.At) < againEvery
	switch {
	case s.Own != nil && !over(s.Own):
		return planned(s, recent)
	case s.Own != nil && madeFor(s.Own, s.Change):
		return Decision{Do: Tell}
	case s.Other != nil:
		return Decision{Do: Wait, Reason: v1alpha1.ReasonWaiting}
	case recent:
		return Decision{Do: Leave}
	}
	return Decision{Do: Plan}
}

// planned is the decision about a Change whose Migration has not ended.
func planned(s Situation, recent bool) Decision {
	origin, _ := journal.OriginOf(s.Own)
	if started(s.Own) {
		return Decision{Do: Tell}
	}
	degraded := meta.FindStatusCondition(s.Own.Status.Conditions, v1alpha1.ConditionDegraded)
	switch {
	case !madeFor(s.Own, s.Change):
		return Decision{Replan, v1alpha1.ReasonPlanning, "the Change was edited"}
	case s.ManifestDigest != "" && origin.ManifestDigest != s.ManifestDigest:
		return Decision{Replan, v1alpha1.ReasonPlanning, "the manifest was edited"}
	case degraded != nil && degraded.Status == "True" && outlived(degraded.Reason):
		return Decision{Replan, v1alpha1.ReasonStale, degraded.Message}
	case !recent && !meta.IsStatusConditionTrue(s.Own.Status.Conditions, v1alpha1.ConditionApproved):
		return Decision{Do: Compare}
	}
	return Decision{Do: Tell}
}

// outlived reports whether a plan that does not begin for this reason never will.
func outlived(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonStalePlan, v1alpha1.ReasonWrongCluster,
		v1alpha1.ReasonUnknownFormat}, reason)
}

// started reports whether a Migration is no longer a mere plan: its run has begun, or a command line has it.
func started(m *v1alpha1.Migration) bool { return journal.Begun(m) || !m.Spec.InCluster }

// madeFor reports whether a Migration has the plan of this version of a Change.
func madeFor(m *v1alpha1.Migration, change *v1alpha1.Change) bool {
	origin, made := journal.OriginOf(m)
	return made && origin.UID == string(change.UID) && origin.Generation == change.Generation
}

func over(m *v1alpha1.Migration) bool {
	phase := engine.Phase(m.Status.Phase)
	return phase == engine.PhaseDone || phase == engine.PhaseRolledBack
}

// split finds the Migration of a Change, and one of another origin that has not ended.
func split(change *v1alpha1.Change, all []v1alpha1.Migration) (own, other *v1alpha1.Migration) {
	for i := range all {
		m := &all[i]
		origin, made := journal.OriginOf(m)
		switch {
		case !made || origin.UID != string(change.UID):
			if !over(m) && (other == nil || m.CreationTimestamp.Before(&other.CreationTimestamp)) {
				other = m
			}
		case own == nil || over(own) && (!over(m) || own.CreationTimestamp.Before(&m.CreationTimestamp)):
			own = m
		}
	}
	return own, other
}

// orphans are Migrations that have not begun, and whose Change does not exist any more.
func orphans(all []v1alpha1.Migration, changes []v1alpha1.Change) []*v1alpha1.Migration {
	var found []*v1alpha1.Migration
	for i := range all {
		origin, made := journal.OriginOf(&all[i])
		if made && !over(&all[i]) && !started(&all[i]) &&
			!slices.ContainsFunc(changes,
				func(c v1alpha1.Change) bool { return string(c.UID) == origin.UID && c.DeletionTimestamp == nil }) {
			found = append(found, &all[i])
		}
	}
	return found
}

// inOrder sorts Changes: the one that was created first is planned first.
func inOrder(all []v1alpha1.Change) {
	slices.SortFunc(all, func(a, b v1alpha1.Change) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
