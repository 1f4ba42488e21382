// Package audit reads the audit log of an API server, and compares what a user asked with what its roles grant.
package audit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Event is one request, with its answer.
type Event struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace string }
	// ResponseStatus has the code of the answer.
	ResponseStatus struct{ Code int }
	RequestURI     string
	Annotations    map[string]string
}

// Read returns the events of an audit log.
func Read(log io.Reader) ([]Event, error) {
	var all []Event
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return all, fmt.Errorf("read the audit log: %w", err)
		}
		all = append(all, event)
	}
	return all, lines.Err()
}

// early reports whether the API server refused a request because it had not yet read a role or binding that it needed:
// it starts to answer before its cache is full. A client asks again.
func (e Event) early() bool {
	return strings.Contains(e.Annotations["authorization.k8s.io/reason"], "not found")
}

// Right is one verb on one resource, in one namespace or, if that is empty, in all.
type Right struct{ Verb, Group, Resource, Namespace string }

func (r Right) String() string {
	text := r.Verb + " " + strings.TrimSuffix(r.Resource+"."+r.Group, ".")
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// asked is the right that a request needs. A request for an address that is no resource has an empty resource.
func (e Event) asked() Right {
	o := e.ObjectRef
	return Right{e.Verb, o.APIGroup, strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/"), o.Namespace}
}

// Roles are a list of ClusterRoles and Roles, as kubectl prints it in JSON.
type Roles struct {
	Items []struct {
		Metadata struct{ Name, Namespace string }
		Rules    []struct{ APIGroups, Resources, Verbs, ResourceNames []string }
	}
}

// Rights returns the rights of roles. served returns the resources of a group that has a verb; it decides what a rule
// for all resources means. If there are none, the right stays as it is: a rule for nothing is also one too many.
func (r Roles) Rights(served func(group, verb string) ([]string, error)) ([]Right, error) {
	rights := map[Right]bool{}
	for _, role := range r.Items {
		for _, rule := range role.Rules {
			everything := slices.Contains(rule.APIGroups, "*") && !slices.Equal(rule.Resources, []string{"*/scale"})
			if len(rule.ResourceNames) > 0 || everything || slices.Contains(rule.Verbs, "*") {
				return nil, fmt.Errorf("the role %s has a rule for all groups or verbs, or for names: %v",
					role.Metadata.Name, rule)
			}
			for _, group := range rule.APIGroups {
				for _, verb := range rule.Verbs {
					resources := rule.Resources
					if slices.Equal(resources, []string{"*"}) {
						found, err := served(group, verb)
						if err != nil {
							return nil, err
						}
						if len(found) > 0 {
							resources = found
						}
					}
					for _, resource := range resources {
						rights[Right{verb, group, resource, role.Metadata.Namespace}] = true
					}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(rights), func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Verb, b.Verb))
	}), nil
}

// Exception is what a comparison does not complain of: rights, as Right.String has them, and why that is right.
type Exception struct {
	Rights *regexp.Regexp
	Why    string
	// Sometimes is true if no right need be like that.
	Sometimes bool
}

// Refused returns what a user asked for and was not allowed to, except for what is known, and the exceptions that
// nothing matches. What the user's rights include was refused early, by an API server that had not read all roles and
// bindings yet: it is asked again.
func Refused(events []Event, rights []Right, known []Exception) []string {
	var refused []Right
	for _, event := range events {
		right := event.asked()
		if event.ResponseStatus.Code == http.StatusForbidden && !event.early() && !granted(right, rights) {
			if right.Resource == "" {
				right.Resource = event.RequestURI
			}
			refused = append(refused, right)
		}
	}
	return but(refused, known, "was refused")
}

// granted reports whether rights include one, and for a patch, which may be a server-side apply, also to create.
func granted(right Right, rights []Right) bool {
	everywhere := right
	everywhere.Namespace = ""
	if !slices.Contains(rights, right) && !slices.Contains(rights, everywhere) {
		return false
	}
	if right.Verb != "patch" {
		return true
	}
	right.Verb = "create"
	return granted(right, rights)
}

// Unused returns the rights that no request of a user needed, except for what is known, and the exceptions that nothing
// matches. Requests that were refused need no right.
func Unused(events []Event, rights []Right, known []Exception) []string {
	used := map[Right]bool{}
	for _, event := range events {
		if event.ResponseStatus.Code == http.StatusForbidden {
			continue
		}
		for _, right := range needed(event) {
			used[right] = true
			right.Namespace = "" // the right for all namespaces
			used[right] = true
		}
	}
	return but(slices.DeleteFunc(slices.Clone(rights), func(right Right) bool { return used[right] }), known,
		"is granted, and was not used")
}

// needed are the rights that an API server demands for a request.
func needed(event Event) []Right {
	asked := event.asked()
	all := []Right{asked}
	if asked.Verb == "patch" && event.ResponseStatus.Code == http.StatusCreated { // a server-side apply
		asked.Verb = "create"
		all = append(all, asked)
	}
	return all
}

// but describes rights that no exception has, once each, and exceptions that no right needs.
func but(rights []Right, known []Exception, what string) []string {
	matched := make([]bool, len(known))
	var wrong []string
	for _, right := range rights {
		text := right.String()
		excused := false
		for i, exception := range known {
			if exception.Rights.MatchString(text) {
				matched[i], excused = true, true
			}
		}
		if text += " " + what; !excused && !slices.Contains(wrong, text) {
			wrong = append(wrong, text)
		}
	}
	for i, exception := range known {
		if !matched[i] && !exception.Sometimes {
			wrong = append(wrong,
				fmt.Sprintf("no right like %s %s any more: %s", exception.Rights, what, exception.Why))
		}
	}
	return wrong
}
