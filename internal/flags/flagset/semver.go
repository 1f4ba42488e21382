package flagset

import (
	"fmt"
	"strings"

	"golang.org/x/mod/semver"
)

// relations are the operators of sem_ver. Versions have a leading v.
var relations = map[string]func(a, b string) bool{
	"=":  func(a, b string) bool { return semver.Compare(a, b) == 0 },
	"!=": func(a, b string) bool { return semver.Compare(a, b) != 0 },
	"<":  func(a, b string) bool { return semver.Compare(a, b) < 0 },
	"<=": func(a, b string) bool { return semver.Compare(a, b) <= 0 },
	">":  func(a, b string) bool { return semver.Compare(a, b) > 0 },
	">=": func(a, b string) bool { return semver.Compare(a, b) >= 0 },
	"^":  func(a, b string) bool { return semver.Major(a) == semver.Major(b) },
	"~":  func(a, b string) bool { return semver.MajorMinor(a) == semver.MajorMinor(b) },
}

// version normalises a value for x/mod/semver; false if it is not a version. A leading v or V is optional, one or two
// numbers are enough, and build metadata after a + is ignored. Note that v1.30.2-eks-abc is a pre-release of 1.30.2,
// and so older than it.
func version(v any) (string, bool) {
	t, ok := v.(string)
	if !ok {
		t = fmt.Sprintf("%v", v)
	}
	if !strings.HasPrefix(t, "v") {
		t = "v" + strings.TrimPrefix(t, "V")
	}
	return t, semver.IsValid(t)
}

// prepareSemver prepares a sem_ver: [value, relation, version]. Invalid arguments yield null.
func prepareSemver(c *compiler, args any) node {
	// Most rules compare with a constant version, which is normalised once.
	if list, ok := args.([]any); ok && len(list) == 3 {
		name, named := list[1].(string)
		relation := relations[name]
		limit, isText := list[2].(string)
		if limit, ok = version(limit); named && relation != nil && isText && ok {
			return &eager{"sem_ver", c.compile(list[0]), func(_ *scope, actual any) (any, error) {
				if actual, ok := version(actual); ok {
					return relation(actual, limit), nil
				}
				return nil, nil
			}}
		}
	}
	return &eager{"sem_ver", c.compile(args), func(_ *scope, args any) (any, error) {
		list, _ := args.([]any)
		if len(list) != 3 {
			return nil, nil
		}
		actual, ok := version(list[0])
		limit, both := version(list[2])
		name, _ := list[1].(string)
		relation := relations[name]
		if !ok || !both || relation == nil {
			return nil, nil
		}
		return relation(actual, limit), nil
	}}
}
