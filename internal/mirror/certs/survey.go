package certs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Group is the API group of cert-manager.
const Group = "cert-manager.io"

// World has the objects read from a cluster.
type World struct {
	// Certificates and Issuers (ClusterIssuers too) are cert-manager's; Routes are Ingresses and Gateways.
	Certificates, Issuers, Routes []*unstructured.Unstructured
	// Leaves are the certificates of the Secrets that these name, by namespace/name; Wrong says why one is none.
	Leaves map[string]*Leaf
	Wrong  map[string]error
}

// Use is an object that serves the certificate of a Secret.
type Use struct {
	Object string
	// Hosts are the names; empty means every name.
	Hosts []string
	// Secret is namespace/name; empty for the default of the controller.
	Secret string

	from *unstructured.Unstructured
}

// For reports whether a name is served there.
func (u Use) For(name string) bool {
	return len(u.Hosts) == 0 || slices.ContainsFunc(u.Hosts, func(host string) bool {
		_, parent, _ := strings.Cut(name, ".")
		return strings.EqualFold(host, name) || strings.EqualFold(host, "*."+parent)
	})
}

// Uses returns the certificates that Ingresses and Gateways serve.
func Uses(routes []*unstructured.Unstructured) []Use {
	var uses []Use
	for _, object := range routes {
		if object.GetKind() == "Ingress" {
			uses = append(uses, ofIngress(object)...)
		} else {
			uses = append(uses, ofGateway(object)...)
		}
	}
	return uses
}

func ofIngress(object *unstructured.Unstructured) []Use {
	var uses []Use
	blocks, _, _ := unstructured.NestedSlice(object.Object, "spec", "tls")
	for _, one := range blocks {
		block, _ := one.(map[string]any)
		use := Use{Object: Name(object), from: object}
		use.Hosts, _, _ = unstructured.NestedStringSlice(block, "hosts")
		if name, _ := block["secretName"].(string); name != "" {
			use.Secret = object.GetNamespace() + "/" + name
		}
		uses = append(uses, use)
	}
	return uses
}

func ofGateway(object *unstructured.Unstructured) []Use {
	var uses []Use
	listeners, _, _ := unstructured.NestedSlice(object.Object, "spec", "listeners")
	for _, one := range listeners {
		listener, _ := one.(map[string]any)
		refs, _, _ := unstructured.NestedSlice(listener, "tls", "certificateRefs")
		for _, each := range refs {
			ref, _ := each.(map[string]any)
			if kind, _ := ref["kind"].(string); kind != "" && kind != "Secret" {
				continue
			}
			name, _ := ref["name"].(string)
			namespace, _ := ref["namespace"].(string)
			use := Use{Object: Name(object), Secret: cmp.Or(namespace, object.GetNamespace()) + "/" + name,
				from: object}
			if host, _ := listener["hostname"].(string); host != "" {
				use.Hosts = []string{host}
			}
			uses = append(uses, use)
		}
	}
	return uses
}

// Verdict says what becomes of a certificate.
type Verdict string

// The verdicts.
const (
	Adds    Verdict = "adds"    // it gets names
	Has     Verdict = "has"     // it has them already
	Stays   Verdict = "stays"   // no rule is for its names, or it was left out
	ByHand  Verdict = "by hand" // cert-manager does not make it, and it needs no more names
	Blocked Verdict = "blocked" // a person has to look at it
)

// Entry is one certificate.
type Entry struct {
	// Object is the Certificate, or where the Secret is served that no Certificate makes.
	Object  string   `json:"object"`
	Verdict Verdict  `json:"verdict"`
	Secret  string   `json:"secret,omitempty"`
	Issuer  string   `json:"issuer,omitempty"`
	Names   []string `json:"names,omitempty"`
	// Add are the names that it gets, Ways how the issuer makes sure of each, To the object they are written to.
	Add  []string       `json:"add,omitempty"`
	Ways map[string]Way `json:"ways,omitempty"`
	To   string         `json:"to,omitempty"`
	// Why and Hint are those of the verdict; Notes do not block.
	Why   string   `json:"why,omitempty"`
	Hint  string   `json:"hint,omitempty"`
	Notes []string `json:"notes,omitempty"`

	// Certificate is cert-manager's object, Target the one that names are written to.
	Certificate, Target *unstructured.Unstructured `json:"-"`
}

// Options are the user's decisions.
type Options struct {
	Rules Rules
	// Skip leaves certificates out, by namespace/name of the Certificate, of its Secret, or of where it is served.
	Skip []string
	// HTTP01 accepts validation by HTTP-01, because the names point to the original.
	HTTP01 bool
	Now    time.Time
	// For is how long the mirror will serve.
	For time.Duration
}

// maxNames is the maximum number of names in a certificate of Let's Encrypt.
const maxNames = 100

// Survey returns what happens to every certificate, sorted by object.
func Survey(w World, o Options) []Entry {
	var entries []Entry
	made := map[string]bool{}
	for _, object := range w.Certificates {
		e := w.certificate(object, o)
		made[e.Secret] = true
		entries = append(entries, e)
	}
	for _, use := range Uses(w.Routes) {
		if !made[use.Secret] {
			entries = append(entries, w.byHand(use, o))
		}
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Object, b.Object) })
	return entries
}

func (e *Entry) decide(verdict Verdict, hint, format string, args ...any) {
	e.Verdict, e.Hint, e.Why = verdict, hint, fmt.Sprintf(format, args...)
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

// key is namespace/name.
func key(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}

// certificate judges a Certificate, the most fundamental reason first.
func (w World) certificate(object *unstructured.Unstructured, o Options) Entry {
	e := Entry{Object: Name(object), Secret: object.GetNamespace() + "/" + text(object, "spec", "secretName"),
		To: Name(object), Certificate: object, Target: object}
	e.Names, _, _ = unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
	names := e.Names
	if common := text(object, "spec", "commonName"); common != "" && !contains(names, common) {
		names = append(slices.Clone(names), common)
	}
	missing, err := o.Rules.Missing(names)
	authority, _, _ := unstructured.NestedBool(object.Object, "spec", "isCA")
	issuer, why := w.issuer(object)
	e.Issuer = refOf(object)
	e.Ways = map[string]Way{}
	for _, name := range slices.Concat(e.Names, missing) {
		e.Ways[name] = Unknown
		if issuer != nil {
			e.Ways[name] = WayOf(issuer, object.GetLabels(), name)
		}
	}
	problem := w.source(&e, object)
	e.renewal(object, o)
	switch {
	case err != nil:
		e.decide(Blocked, "correct the rule", "%v", err)
	case slices.Contains(o.Skip, key(object)) || slices.Contains(o.Skip, e.Secret):
		e.decide(Stays, "", "it was left out (--skip)")
	case len(missing) == 0 && !slices.ContainsFunc(names,
		func(n string) bool { _, ok := o.Rules.Mirror(n); return ok }):
		e.decide(Stays, "", "no rule of --domain matches its names")
	case authority:
		e.decide(Stays, "", "it is the certificate of a CA")
	case len(missing) == 0:
		e.decide(Has, "", "it has them")
	case why != "":
		e.decide(Blocked, "fix the issuer, or leave it out with --skip "+key(object), "%s", why)
	case problem != "" && e.Target.GetAnnotations()[RecordAnnotation] != "":
		e.decide(Blocked, "names were added before: remove them with theseus mirror certs back, or fix the problem",
			"%s", problem)
	case problem != "":
		e.decide(Blocked, "fix that, or leave it out with --skip "+key(object), "%s", problem)
	default:
		e.Add = missing
		e.ask(object, o)
	}
	return e
}

// source finds where names are written: cert-manager keeps a Certificate that it made for an Ingress or a Gateway as
// that one wants it.
func (w World) source(e *Entry, object *unstructured.Unstructured) (problem string) {
	if condition, _ := conditionOf(object, "Ready"); condition == "False" {
		problem = "it is not issued yet" + Said(object)
	}
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return problem
	}
	for _, route := range w.Routes {
		if route.GetUID() == owner.UID && route.GetNamespace() == object.GetNamespace() {
			e.To, e.Target = Name(route), route
			return problem
		}
	}
	return fmt.Sprintf("%s %s makes it, and would remove the names again", owner.Kind, owner.Name)
}

// ask says whether the names to be added can be proven before anything points to the mirror.
func (e *Entry) ask(object *unstructured.Unstructured, o Options) {
	byHTTP, none := e.by(HTTP01), e.by(NoWay)
	total := len(e.Names) + len(e.Add)
	switch {
	case len(none) > 0:
		e.decide(Blocked, "give the issuer a dns01 solver for "+none[0], "%s has no solver for %s",
			e.Issuer, strings.Join(none, ", "))
	case len(byHTTP) > 0 && !o.HTTP01:
		e.decide(Blocked, "give the issuer a dns01 solver with a selector for "+byHTTP[0]+
			"; or leave it out with --skip "+key(object)+
			": its Secret is copied unchanged, and serves the names that it has; or, if these names point to the "+
			"original, "+
			"accept it with --http01",
			"the CA verifies %s by HTTP-01: the name must point to this cluster to get a certificate, but gets a "+
				"certificate only before it points to one", strings.Join(byHTTP, ", "))
	case total > maxNames && len(e.by(NotAsked)) == 0:
		e.decide(Blocked, "split it into several Certificates",
			"it would have %d names, but CAs allow only %d", total, maxNames)
	default:
		e.decide(Adds, "", "")
	}
}

// by are the names to be added that the issuer makes sure of in one way.
func (e *Entry) by(way Way) []string {
	var names []string
	for _, name := range e.Add {
		if e.Ways[name] == way {
			names = append(names, name)
		}
	}
	return names
}

// renewal notes a certificate that has to be renewed while the mirror serves, and is not by itself.
func (e *Entry) renewal(object *unstructured.Unstructured, o Options) {
	at, err := time.Parse(time.RFC3339, text(object, "status", "renewalTime"))
	if err != nil || at.After(o.Now.Add(o.For)) {
		return
	}
	if e.Target != object {
		e.Notes = append(e.Notes, fmt.Sprintf("it renews %s, and only in the original, since %s is copied without its "+
			"issuer: copy again after that", day(at), e.To))
	}
	for _, name := range e.Names {
		if e.Ways[name] == HTTP01 {
			e.Notes = append(e.Notes, fmt.Sprintf("it renews %s by HTTP-01: the original cannot renew it while %s "+
				"points "+
				"to the mirror, and the mirror can only renew it then; renew it before the move, or use DNS-01",
				day(at), name))
			return
		}
	}
}

func refOf(object *unstructured.Unstructured) string {
	return cmp.Or(text(object, "spec", "issuerRef", "kind"), "Issuer") + " " + text(object, "spec", "issuerRef", "name")
}

// issuer finds the issuer of a Certificate, and says why it cannot issue. An issuer of another group is nil.
func (w World) issuer(object *unstructured.Unstructured) (*unstructured.Unstructured, string) {
	kind, name := cmp.Or(text(object, "spec", "issuerRef", "kind"), "Issuer"), text(object, "spec", "issuerRef", "name")
	if group := text(object, "spec", "issuerRef", "group"); group != "" && group != Group {
		return nil, ""
	}
	for _, issuer := range w.Issuers {
		if issuer.GetKind() == kind && issuer.GetName() == name &&
			(kind == "ClusterIssuer" || issuer.GetNamespace() == object.GetNamespace()) {
			if condition, message := conditionOf(issuer, "Ready"); condition == "False" {
				return issuer, fmt.Sprintf("%s %s is not ready: %s", kind, name, message)
			}
			return issuer, ""
		}
	}
	return nil, fmt.Sprintf("%s %s does not exist", kind, name)
}

// conditionOf is the status of a condition ("" without one), and its message.
func conditionOf(object *unstructured.Unstructured, kind string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		if condition, _ := one.(map[string]any); condition["type"] == kind {
			status, _ = condition["status"].(string)
			message, _ = condition["message"].(string)
		}
	}
	return status, message
}

// byHand judges a Secret that is served and that no Certificate makes.
func (w World) byHand(use Use, o Options) Entry {
	e := Entry{Object: use.Object, Secret: use.Secret, Names: use.Hosts}
	const copied = "its Secret is copied with its namespace; the mirror does not renew it"
	missing, err := o.Rules.Missing(use.Hosts)
	leaf := w.Leaves[use.Secret]
	switch {
	case err != nil:
		e.decide(Blocked, "correct the rule", "%v", err)
	case slices.Contains(o.Skip, use.Secret) || slices.Contains(o.Skip, key(use.from)):
		e.decide(Stays, "", "it was left out (--skip)")
	case use.Secret == "":
		e.decide(Blocked, "name a Secret in it, or give the mirror's controller the "+
			"same default certificate and leave it out with --skip "+key(use.from),
			"the controller serves its default certificate, which is not a copied object")
	case w.Wrong[use.Secret] != nil:
		e.decide(Blocked, "fix the Secret, or leave it out with --skip "+use.Secret, "%v", w.Wrong[use.Secret])
	case leaf == nil:
		e.decide(Blocked, "create it, or leave it out with --skip "+use.Secret, "there is no Secret %s", use.Secret)
	case len(Covers(leaf.Certificate, missing)) > 0:
		e.decide(Blocked, "order a certificate with these names and put it into the Secret, or leave it out with "+
			"--skip "+
			""+use.Secret+
			": its present names are still served",
			"cert-manager does not make it, and it does not cover %s",
			strings.Join(Covers(leaf.Certificate, missing), ", "))
	default:
		e.decide(ByHand, "", copied)
	}
	if leaf != nil && o.Now.Add(o.For).After(leaf.NotAfter) {
		e.Notes = append(e.Notes, "it expires "+day(leaf.NotAfter))
	}
	return e
}

// Said returns cert-manager's messages in the conditions of a Certificate that has problems.
func Said(object *unstructured.Unstructured) string {
	var said []string
	for _, kind := range []string{"Ready", "Issuing"} {
		status, message := conditionOf(object, kind)
		message = strings.Join(strings.Fields(message), " ")
		if good := kind == "Ready" && status == "True"; message != "" && !good && !slices.Contains(said, message) {
			said = append(said, message)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return " (cert-manager: " + strings.Join(said, "; ") + ")"
}

// Wants reports whether a Certificate requests all of these names.
func Wants(object *unstructured.Unstructured, names []string) bool {
	wanted, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
	return !slices.ContainsFunc(names, func(name string) bool { return !contains(wanted, name) })
}

// GivenUp reports whether cert-manager has failed to get a Certificate issued and is not retrying: it waits an hour
// after the first failure, and longer after each further one, even if the names were removed and added again meanwhile
// (pkg/controller/certificates/trigger).
func GivenUp(object *unstructured.Unstructured) bool {
	ready, _ := conditionOf(object, "Ready")
	issuing, _ := conditionOf(object, "Issuing")
	_, failed, _ := unstructured.NestedString(object.Object, "status", "lastFailureTime")
	return failed && ready == "False" && issuing == "False"
}

// SecretsFor are the certificates that Ingresses and Gateways serve for a name; an error when one of their Secrets is
// missing or holds none.
func (w World) SecretsFor(name string) ([]*Leaf, error) {
	var found []*Leaf
	for _, use := range Uses(w.Routes) {
		if use.Secret == "" || !use.For(name) || len(use.Hosts) == 0 && w.Leaves[use.Secret] != nil &&
			len(Covers(w.Leaves[use.Secret].Certificate, []string{name})) > 0 {
			continue
		}
		switch leaf := w.Leaves[use.Secret]; {
		case w.Wrong[use.Secret] != nil:
			return nil, w.Wrong[use.Secret]
		case leaf == nil:
			return nil, fmt.Errorf("the mirror has no Secret %s, which %s names", use.Secret, use.Object)
		default:
			found = append(found, leaf)
		}
	}
	return found, nil
}

// Blocking returns the entries that prevent adding names.
func Blocking(entries []Entry) []Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return e.Verdict != Blocked })
}
