package changes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/kstatus"
)

// Limits of a status: it stays far below the API server's limit of 1.5 MiB.
const (
	maxFindings = 50
	maxText     = 2 << 10 // bytes of a message or a fix
	maxMessage  = 32 << 10
	maxDeletes  = 20
	maxEvent    = 1000 // bytes of the message of an event: the API server refuses more than 1024
)

// draft is the next status of a Change, apart from the Migration's own conditions.
type draft struct {
	planned  bool
	reason   string
	message  string
	summary  []string
	next     []string
	findings []finding.Finding
	// withdraws is true if the Migration is about to be withdrawn, and windows are those of a user in it, or nil.
	withdraws bool
	windows   *v1alpha1.KeptWindows
}

// unplanned is the status of a Change without a plan.
func unplanned(reason, message string, next ...string) draft {
	return draft{reason: reason, message: message, next: next}
}

// kind is the kind of the event for a Change that gets this reason; "" for none: the controller is about to act by
// itself, or its action has an event of its own.
func (d draft) kind() string {
	switch d.reason {
	case v1alpha1.ReasonPlanned, v1alpha1.ReasonPlanning, v1alpha1.ReasonStale, v1alpha1.ReasonRetrying:
		return ""
	case v1alpha1.ReasonWaiting:
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// status is the next status of a Change. own is its Migration, or nil.
func (d draft) status(change *v1alpha1.Change, own *v1alpha1.Migration, now time.Time) v1alpha1.ChangeStatus {
	next := v1alpha1.ChangeStatus{ObservedGeneration: change.Generation, Summary: d.summary, Next: d.next,
		Findings: listed(d.findings)}
	switch {
	case d.withdraws:
		next.Windows = d.windows
	case own == nil: // until there is the next one
		next.Windows = change.Status.Windows
	}
	is := metav1.ConditionFalse
	if d.planned {
		is = metav1.ConditionTrue
	}
	all := []metav1.Condition{{Type: v1alpha1.ConditionPlanned, Status: is, Reason: d.reason,
		Message: cut(d.message, maxMessage)}}
	if own != nil {
		origin, _ := journal.OriginOf(own)
		next.Migration, next.PlanHash, next.Phase, next.ManifestDigest = own.Name, own.Spec.PlanHash,
			own.Status.Phase, origin.ManifestDigest
		next.Approval = own.Status.Approval
		all = append(all, own.Status.Conditions...)
	}
	all, _ = kstatus.Add(all, metav1.NewTime(now))
	for _, condition := range all {
		condition.ObservedGeneration, condition.LastTransitionTime = change.Generation, metav1.NewTime(now)
		if before := meta.FindStatusCondition(change.Status.Conditions, condition.Type); before != nil &&
			before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
		next.Conditions = append(next.Conditions, condition)
	}
	return next
}

// of is the status that follows from a Migration and its plan. known is nil if the plan cannot be read.
func of(change *v1alpha1.Change, own *v1alpha1.Migration, known *facts) draft {
	d := draft{planned: true, reason: v1alpha1.ReasonPlanned,
		message: "Migration " + own.Name + " has the plan " + own.Spec.PlanHash}
	if known != nil {
		d.summary, d.findings = known.summary, known.findings
	}
	switch {
	case over(own):
		d.message = "Migration " + own.Name + " has ended: " + own.Status.Phase
		d.next = []string{"read what was measured: theseus report " + own.Name,
			"to make another plan, edit this Change, or delete it and apply it again"}
	case started(own):
		d.next = []string{"follow the run: theseus watch " + own.Name}
		if !madeFor(own, change) {
			d.reason = v1alpha1.ReasonEdited
			d.message = "this Change was edited after its Migration " + own.Name +
				" began: the edit has no effect on that run. " +
				"When the run has ended, the edited Change gets a plan of its own"
		}
	default:
		d.next = approve(own)
	}
	return d
}

// approve says how a person lets a plan begin.
func approve(own *v1alpha1.Migration) []string {
	account := v1alpha1.Namespace + "/" + manifest.ControllerName
	sign := ""
	if counts := own.Status.Approval; counts != nil && counts.SignedOnly {
		sign = " " + journal.SignsWith
	}
	return []string{
		"read the whole plan: theseus plan show --migration " + own.Name + " -o plan.yaml",
		"grant the controller the permissions for it: theseus rights operate --plan plan.yaml --for serviceaccount:" +
			account + " | kubectl apply -f -",
		"approve it: theseus approve " + own.Name + " --plan plan.yaml" + sign,
		"or withdraw it: delete this Change",
	}
}

// summary says what a plan does, one item a line.
func summary(p *plan.Plan) []string {
	var lines []string
	for line := range strings.Lines(plan.Summary(p)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, cut(line, maxText))
		}
	}
	treated := map[string]int{}
	for _, w := range p.Workloads {
		treated[w.Treatment]++
	}
	for _, kind := range []struct{ treatment, words string }{
		{"adopt", "whose pods keep running"}, {"move", "whose pods are recreated"},
		{"stay", "whose pods do not change"},
	} {
		if n := treated[kind.treatment]; n > 0 {
			lines = append(lines, cluster.Count(n, "workload")+" "+kind.words)
		}
	}
	if p.Change.AgentImage != "" {
		lines = append(lines, "It runs the image "+p.Change.AgentImage+" as root on every node.")
		if !strings.Contains(p.Change.AgentImage, "@sha256:") {
			lines = append(lines, "Warning: this image is named by a tag. Anyone who can push to its registry can "+
				"change "+
				"what runs, also after your approval.")
		}
	}
	reach := plan.ReachOf(p)
	if n := len(reach.Deletes); n > 0 {
		text := "It deletes: " + strings.Join(reach.Deletes[:min(n, maxDeletes)], ", ")
		if n > maxDeletes {
			text += fmt.Sprintf(", and %d more", n-maxDeletes)
		}
		lines = append(lines, cut(text, maxText))
	}
	if reach.NoReturn > 0 {
		lines = append(lines, fmt.Sprintf("The point of no return is step %d of %d: %s",
			reach.NoReturn, len(p.Steps), reach.Title))
	}
	return lines
}

// severities are the severities in the order of a status.
var severities = []finding.Severity{finding.Block, finding.Warn, finding.Info}

// listed are findings for a status, the most severe first.
func listed(all []finding.Finding) []v1alpha1.ChangeFinding {
	all = slices.Clone(all)
	rank := func(f finding.Finding) int {
		if f.Accepted != "" {
			return slices.Index(severities, finding.Warn)
		}
		return slices.Index(severities, f.Severity)
	}
	slices.SortStableFunc(all, func(a, b finding.Finding) int { return rank(a) - rank(b) })
	var list []v1alpha1.ChangeFinding
	for _, f := range all[:min(len(all), maxFindings)] {
		list = append(list, v1alpha1.ChangeFinding{Severity: string(f.Severity), ID: f.ID, Subject: f.Subject.String(),
			Message: cut(f.Message, maxText), Fix: cut(f.Fix, maxText), Accepted: cut(f.Accepted, maxText)})
	}
	return list
}

// cut is a text within a number of bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// waiting is the status of a Change while another migration has not ended.
func waiting(other *v1alpha1.Migration) draft {
	what, how := "migration "+other.Name+" has not ended", "`theseus status "+other.Name+"` shows it"
	if origin, made := journal.OriginOf(other); made {
		what = "Change " + origin.Name + " is first: its " + what
		if !started(other) {
			how = "approve its plan, or delete Change " + origin.Name + " to withdraw it"
		}
	}
	return unplanned(v1alpha1.ReasonWaiting, what+". This Change gets its plan after that", how)
}

// blocked is the status of a Change that findings block.
func blocked(result finding.Result, blocking []finding.Finding) draft {
	const most = 5
	var texts []string
	for _, f := range blocking[:min(len(blocking), most)] {
		texts = append(texts, f.ID+" ("+f.Subject.String()+"): "+cut(f.Message, maxText))
	}
	if n := len(blocking) - most; n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	d := unplanned(v1alpha1.ReasonBlocked, fmt.Sprintf("findings block this change: %d: %s",
		len(blocking), strings.Join(texts, "; ")),
		"fix the findings that block: status.findings has a fix for each",
		"or accept one: add its ID and your reason to spec.accept",
		"the controller checks again within "+againEvery.String())
	d.findings = result.Findings
	return d
}
