// Package gitops checks what else writes the objects of a plan.
package gitops

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/owner"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed owner.md
var ownerDoc string

const ownerID = "gitops/owner"

// Owner reports what maintains the objects that a plan writes or deletes, and would take the writes back.
func Owner() check.Check {
	return check.Check{
		ID:    ownerID,
		Title: "A deployment tool or an operator maintains an object that the plan writes or deletes",
		Doc:   ownerDoc,
		Needs: []string{"plan"},
		Part:  unknown,
		Run:   owners,
	}
}

// group is the objects of a plan that have the same owner.
type group struct {
	owner.Owner
	writes []step.Write
	marks  []string
	// writer is set if only managedFields name the owner.
	writer *metav1.ManagedFieldsEntry
}

func owners(pass *check.Pass) []finding.Finding {
	deployers := owner.Deploying(pass.Snapshot.Other)
	writes := step.Writes(pass.Steps)
	metadata := metadataOf(pass.Snapshot, writes)
	var groups []*group
	add := func(o owner.Owner, w step.Write, writer *metav1.ManagedFieldsEntry) {
		at := slices.IndexFunc(groups, func(g *group) bool {
			return g.Tool == o.Tool && g.Key == o.Key && g.Mode == o.Mode
		})
		if at < 0 {
			at, groups = len(groups), append(groups, &group{Owner: o, writer: writer})
		}
		groups[at].writes = append(groups[at].writes, w)
		if !slices.Contains(groups[at].marks, o.Mark) {
			groups[at].marks = append(groups[at].marks, o.Mark)
		}
	}
	for _, w := range writes {
		object := metadata[keyOf(w)]
		known := deployers.Of(keyOf(w), object)
		for _, o := range known {
			if !leaves(writes, o) {
				add(o, w, nil)
			}
		}
		if len(known) > 0 || object == nil {
			continue
		}
		if tool, last, ok := owner.Writer(object); ok && !runsInPlan(writes, last.Manager) {
			add(owner.Owner{Tool: tool, Mode: last.Manager, Mark: "managedFields"}, w, &last)
		}
	}
	var found []finding.Finding
	for _, g := range groups {
		if f, ok := g.judge(pass, deployers); ok {
			found = append(found, f)
		}
	}
	return found
}

func keyOf(w step.Write) owner.Key {
	return owner.Key{Group: w.GroupKind().Group, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}

// leaves reports whether the plan deletes an owner.
func leaves(writes []step.Write, o owner.Owner) bool {
	return slices.ContainsFunc(writes, func(w step.Write) bool { return w.Deletes && keyOf(w) == o.Key })
}

// runsInPlan reports whether the plan itself changes the Deployment of an operator, and so counts with it.
func runsInPlan(writes []step.Write, manager string) bool {
	return slices.ContainsFunc(writes, func(w step.Write) bool {
		return w.Kind == "Deployment" && (strings.Contains(w.Name, manager) || strings.Contains(manager, w.Name))
	})
}

// metadataOf returns the metadata of the written objects: as read for the plan, or else that of the snapshot.
func metadataOf(s *cluster.Snapshot, writes []step.Write) map[owner.Key]metav1.Object {
	wanted := make(map[owner.Key]bool, len(writes))
	for _, w := range writes {
		wanted[keyOf(w)] = true
	}
	found := map[owner.Key]metav1.Object{}
	keep := func(group, kind string, o metav1.Object) {
		if key := (owner.Key{Group: group, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}); wanted[key] {
			found[key] = o
		}
	}
	each(s.Namespaces, func(o metav1.Object) { keep("", "Namespace", o) })
	each(s.Services, func(o metav1.Object) { keep("", "Service", o) })
	each(s.ConfigMaps, func(o metav1.Object) { keep("", "ConfigMap", o) })
	each(s.DaemonSets, func(o metav1.Object) { keep("apps", "DaemonSet", o) })
	each(s.Deployments, func(o metav1.Object) { keep("apps", "Deployment", o) })
	each(s.StatefulSets, func(o metav1.Object) { keep("apps", "StatefulSet", o) })
	each(s.Budgets, func(o metav1.Object) { keep("policy", "PodDisruptionBudget", o) })
	each(s.NetworkPolicies, func(o metav1.Object) { keep("networking.k8s.io", "NetworkPolicy", o) })
	for i := range s.Other {
		keep(s.Other[i].GroupVersionKind().Group, s.Other[i].GetKind(), &s.Other[i])
	}
	for i := range s.Written {
		keep(s.Written[i].GroupVersionKind().Group, s.Written[i].Kind, &s.Written[i])
	}
	return found
}

// each calls a function with each object of a list.
func each[T any, P interface {
	*T
	metav1.Object
}](list []T, call func(metav1.Object)) {
	for i := range list {
		call(P(&list[i]))
	}
}

// judge returns the finding about one owner, if there is something to report.
func (g *group) judge(pass *check.Pass, deployers *owner.Deployers) (finding.Finding, bool) {
	f := finding.Finding{ID: ownerID, Severity: finding.Warn, Subject: g.subject(),
		Evidence: map[string]any{"tool": string(g.Tool), "objects": g.names(len(g.writes)), "marks": g.marks}}
	switch {
	case g.writer != nil:
		g.byManager(&f)
	case g.Key.Kind == "Application" || g.Tool == owner.Flux:
		g.deployed(&f, pass, deployers)
	case g.Tool == owner.Helm:
		g.released(&f)
	case g.Tool == owner.AddonManager:
		if g.Mode != owner.Reconcile && (g.Mode != owner.EnsureExists ||
			!slices.ContainsFunc(g.writes, func(w step.Write) bool { return w.Deletes })) {
			return f, false
		}
		g.addon(&f)
	case g.Tool == owner.Operator:
		f.Message = fmt.Sprintf("%s owns %s (ownerReferences): its operator may take back what the plan changes; "+
			"whether it does is not known",
			g.Key, g.words())
		f.Fix = "ask the operator's documentation how to pause it for " + g.Key.String() +
			"; if it does not revert these objects, accept the finding"
	default:
		f.Message = fmt.Sprintf("%s maintains %s (%s): it may take back what the plan changes; whether it "+
			"runs by itself is not known",
			g.Tool, g.words(), g.marks[0])
		f.Fix = fmt.Sprintf("pause %s for these objects, or accept the finding if it does not run by itself", g.Tool)
	}
	return f, true
}

// afterwards is what must happen before an owner reconciles again.
const afterwards = "; before you resume it after the change, put the new state into its source: " +
	"it would restore the old one"

func (g *group) deployed(f *finding.Finding, pass *check.Pass, deployers *owner.Deployers) {
	object := deployers.Find(g.Key)
	if object == nil {
		why := "there is no " + g.Key.String() +
			" in this cluster: another cluster may have it, or the mark is left over"
		if unread := unreadOf(pass.Snapshot, g.Key); unread != "" {
			why = "whether it reconciles by itself is not known: " + unread
		}
		f.Message = fmt.Sprintf("%s of %s maintains %s (%s); %s", g.Key, g.Tool, g.words(), g.marks[0], why)
		f.Fix = fmt.Sprintf(
			"suspend it where %s runs, or accept the finding if nothing reconciles these objects any more", g.Tool)
		return
	}
	when, runs := owner.Reconciles(object)
	if runs && !owner.Here(object) {
		f.Message = fmt.Sprintf("%s of %s maintains %s (%s), but it deploys to another cluster, or to this one by "+
			"another name: whether it reconciles these objects is not known",
			g.Key, g.Tool, g.words(), g.marks[0])
		f.Fix = "compare its destination with this cluster: kubectl -n " + shell.Word(g.Key.Namespace) + " get " +
			shell.Word(strings.ToLower(g.Key.Kind)) + " " +
			shell.Word(g.Key.Name) + " -o yaml; suspend it if it is this cluster, otherwise accept the finding"
		return
	}
	if !runs {
		f.Severity = finding.Info
		f.Message = fmt.Sprintf("%s of %s maintains %s, and does not reconcile by itself", g.Key, g.Tool, g.words())
		f.Fix = "leave it so during the change" + afterwards
		return
	}
	f.Severity = finding.Block
	f.Message = fmt.Sprintf("%s of %s maintains %s, and reconciles by itself: it would take back what the plan "+
		"changes %s", g.Key, g.Tool, g.words(), when)
	f.Evidence["reconciles"] = when
	var suspend, resume []string
	unread := ""
	for _, command := range deployers.Suspend(g.Key) {
		suspend, resume = append(suspend, command.Do), append([]string{command.Back}, resume...) // the last one first
		if command.Unread {
			unread = " (look at the ApplicationSet first: if it had spec.syncPolicy.applicationsSync, " +
				"put that back instead)"
		}
	}
	f.Fix = "suspend it: " + strings.Join(suspend, " && ") + afterwards + ". These commands restore the old values: " +
		strings.Join(resume, " && ") + unread
}

func (g *group) released(f *finding.Finding) {
	f.Severity = finding.Info
	f.Message = fmt.Sprintf("Helm's release %s/%s has %s: Helm does nothing by itself, but its next upgrade or "+
		"rollback would restore the old state",
		g.Key.Namespace, g.Key.Name, g.words())
	where := "helm -n " + shell.Word(g.Key.Namespace)
	f.Fix = "do not upgrade it during the change; afterwards upgrade it with values that describe the new state. If " +
		"the plan removes all that the release has (" + where + " get manifest " + shell.Word(g.Key.Name) +
		"), uninstall it: " + where +
		" uninstall " + shell.Word(g.Key.Name)
}

func (g *group) addon(f *finding.Finding) {
	f.Severity = finding.Block
	f.Message = fmt.Sprintf("the addon-manager maintains %s (%s=%s), and reconciles by itself: it would take back "+
		"what the plan changes within minutes",
		g.words(), strings.TrimPrefix(g.marks[0], "label "), g.Mode)
	if g.Mode == owner.EnsureExists {
		f.Message = fmt.Sprintf("the addon-manager makes sure that %s exist (%s=%s): it would create again what the "+
			"plan deletes within minutes",
			g.words(), strings.TrimPrefix(g.marks[0], "label "), g.Mode)
	}
	f.Fix = "stop the addon-manager during the change: move its manifest out of /etc/kubernetes/manifests on each " +
		"control-plane node. Do not remove the files of these objects from /etc/kubernetes/addons before it has " +
		"stopped: it would delete the objects. Before it starts again, put the new state there, or remove them. " +
		"Where a provider runs the addon-manager, ask how to turn this add-on off without deleting it"
}

// byManager is for an object without a mark.
func (g *group) byManager(f *finding.Finding) {
	at := ""
	if g.writer.Time != nil {
		last := g.writer.Time.UTC().Format(time.RFC3339)
		at, f.Evidence["last"] = " at "+last, last
	}
	f.Message = fmt.Sprintf("%s has no mark of a tool, but the manager %s wrote it%s (managedFields), which is %s: "+
		"it may take back what the plan changes; whether it does is not known", g.words(), g.writer.Manager, at, g.Tool)
	f.Fix = "find out whether " + g.writer.Manager +
		" still maintains it, and pause it if so; otherwise accept the finding"
}

func (g *group) subject() finding.Subject {
	if g.Key.Kind == "" || g.Tool == owner.Helm {
		first := g.writes[0]
		return finding.Subject{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name}
	}
	return finding.Subject{Kind: g.Key.Kind, Namespace: g.Key.Namespace, Name: g.Key.Name}
}

// words names the objects for a message.
func (g *group) words() string {
	const most = 3
	text := strings.Join(g.names(most), ", ")
	if more := len(g.writes) - most; more > 0 {
		text += " and " + cluster.Count(more, "more object")
	}
	return text
}

func (g *group) names(most int) []string {
	var names []string
	for _, w := range g.writes[:min(most, len(g.writes))] {
		names = append(names, w.String())
	}
	return names
}

// unknown names the evidence that is missing.
func unknown(pass *check.Pass) string {
	var lacks []string
	for _, kind := range owner.Kinds() {
		if why := unreadOf(pass.Snapshot, owner.Key{Group: kind.Group, Kind: kind.Kind}); why != "" {
			lacks = append(lacks, why)
		}
	}
	writes := step.Writes(pass.Steps)
	metadata := metadataOf(pass.Snapshot, writes)
	said := map[string]bool{}
	for _, w := range writes {
		name := cluster.MetadataOf(w.GroupKind())
		if ok, why := pass.Snapshot.Has(name); !ok && metadata[keyOf(w)] == nil && !said[name] &&
			!absent(pass.Snapshot, w) {
			said[name] = true
			lacks = append(lacks, name+": "+why)
		}
	}
	return strings.Join(lacks, "; ")
}

// absent reports whether the snapshot shows that an object that is not in it does not exist.
func absent(s *cluster.Snapshot, w step.Write) bool {
	gk := w.GroupKind()
	resource := map[string]string{"Namespace": "namespaces", "Service": "services", "DaemonSet.apps": "daemonsets",
		"Deployment.apps": "deployments", "StatefulSet.apps": "statefulsets",
		"PodDisruptionBudget.policy": "poddisruptionbudgets", "NetworkPolicy.networking.k8s.io": "networkpolicies",
		"CustomResourceDefinition.apiextensions.k8s.io": "customresourcedefinitions"}[gk.String()]
	if gk.String() == "ConfigMap" && cluster.IsSystemNamespace(w.Namespace) {
		resource = "configmaps"
	}
	if resource == "" {
		resource = gk.Group // all resources of the groups of networks are in a snapshot
	}
	ok, _ := s.Has(resource)
	return ok
}

// unreadOf returns why the objects of Argo CD or Flux of a kind were not read; empty if they were, or if the API server
// has none.
func unreadOf(s *cluster.Snapshot, key owner.Key) string {
	for _, kind := range owner.Kinds() {
		if kind.Group != key.Group || kind.Kind != key.Kind {
			continue
		}
		name := kind.Resource + "." + kind.Group
		if at := slices.IndexFunc(s.Sources,
			func(source cluster.Source) bool { return source.Resource == name }); at >= 0 {
			return prefixed(name, s.Sources[at].Missing)
		}
		_, why := s.Has(kind.Group)
		return prefixed(name, why)
	}
	return ""
}

func prefixed(name, why string) string {
	if why == "" {
		return ""
	}
	return name + ": " + why
}
