// Package registry asks image registries whether they have an image, with the logins that a pod would have, and pushes
// the images of an OCI layout.
package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// callTimeout bounds one question.
const callTimeout = 30 * time.Second

// Absent says that an image cannot be pulled.
type Absent struct {
	Image string
	why   string
	hint  string
	err   error
}

func (a *Absent) Error() string { return a.Image + " " + a.why }
func (a *Absent) Unwrap() error { return a.err }

// Missing says that the registry answered, and has no such image.
func (a *Absent) Missing() bool { return statusOf(a.err) == http.StatusNotFound }

// Hint says what to try.
func (a *Absent) Hint() string { return a.hint }

// Has returns nil if one of the logins, documents .dockerconfigjson, can pull an image; without any that is for its
// registry, if anybody can. Loopback addresses are asked without TLS, as everybody does.
func Has(ctx context.Context, image string, logins [][]byte) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return &Absent{image, "is not the name of an image", "correct the rule of --registry that made the name", err}
	}
	found := Logins(image, logins)
	if len(found) == 0 {
		found = []authn.AuthConfig{{}}
	}
	for _, login := range found {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		_, err = remote.Head(ref, remote.WithContext(bounded), remote.WithAuth(authn.FromConfig(login)))
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return explain(image, ref, err, len(Logins(image, logins)))
}

// digestTimeout bounds the question for a digest: the caller has an answer without it too.
const digestTimeout = 5 * time.Second

// Digest is an image's name with the digest that its registry says it has now, asked for with this machine's own
// logins, as docker and crane have them. A name that has a digest is its own answer, without a question.
func Digest(ctx context.Context, image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", &Absent{image, "is not the name of an image", "correct it", err}
	}
	if _, known := ref.(name.Digest); known {
		return image, nil
	}
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	found, err := remote.Head(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	host := ref.Context().RegistryStr()
	switch status := statusOf(err); {
	case err == nil:
		return image + "@" + found.Digest.String(), nil
	case status == http.StatusNotFound:
		return "", &Absent{image, "does not exist", "push it, or correct the name", err}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "", &Absent{image, "may not be read: " + host + " requires a login",
			"log in on this machine: docker login " + host, err}
	}
	return "", explain(image, ref, err, 0)
}

// statusOf is the status of HTTP with which a registry refused; 0 where it is none that did.
func statusOf(err error) int {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

func explain(image string, ref name.Reference, err error, logins int) error {
	host := ref.Context().RegistryStr()
	switch status := statusOf(err); {
	case status == http.StatusNotFound:
		return &Absent{image, "does not exist", "push it, such as with crane copy, or correct the rule", err}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		if logins == 0 {
			return &Absent{image, "may not be pulled: " + host + " requires a login, and no pull secret has one for it",
				"add one to a pull secret, or accept it with --unproven " + host + " if the nodes log in by themselves",
				err}
		}
		return &Absent{image, fmt.Sprintf("may not be pulled: %s refuses the %d logins of the pull secrets",
			host, logins), "correct the login in the pull secret", err}
	}
	return unreached(image, "cannot be asked for", host, err)
}

// unreached explains why a registry did not answer; cannot is what could not be done with the image.
func unreached(image, cannot, host string, err error) error {
	var record tls.RecordHeaderError
	switch {
	case outage.Untrusted(err):
		return &Absent{image, cannot + ": the certificate of " + host + " is not trusted: " + err.Error(),
			"install the CA that signed it on this machine and on the nodes", err}
	case errors.As(err, &record):
		return &Absent{image, cannot + ": " + host + " does not speak TLS", "use its TLS port", err}
	}
	return &Absent{image, cannot + ": " + err.Error(), "check the name of the registry, and the network from here", err}
}

// Logins are the logins for the registry of an image, the most precise first, as the kubelet chooses them: the host
// of an entry may have a * for a part of its name, and may have the first parts of a repository after it.
func Logins(image string, documents [][]byte) []authn.AuthConfig {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil
	}
	host, repository := ref.Context().RegistryStr(), ref.Context().RepositoryStr()
	type match struct {
		precise int
		login   authn.AuthConfig
	}
	var matches []match
	for _, document := range documents {
		var config struct {
			Auths map[string]struct{ Auth, Username, Password, IdentityToken, RegistryToken string }
		}
		if json.Unmarshal(document, &config) != nil {
			continue
		}
		for key, entry := range config.Auths {
			key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
			for _, version := range []string{"/v1/", "/v2/", "/v1", "/v2", "/"} {
				key = strings.TrimSuffix(key, version)
			}
			where, below, _ := strings.Cut(key, "/")
			if !sameHost(where, host) || below != "" && repository != below &&
				!strings.HasPrefix(repository, below+"/") {
				continue
			}
			login := authn.AuthConfig{Username: entry.Username, Password: entry.Password,
				IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken}
			if decoded, err := base64.StdEncoding.DecodeString(entry.Auth); err == nil && entry.Auth != "" {
				login.Username, login.Password, _ = strings.Cut(string(decoded), ":")
			}
			matches = append(matches, match{len(key), login})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int {
		return cmp.Or(b.precise-a.precise, strings.Compare(a.login.Username, b.login.Username))
	})
	var logins []authn.AuthConfig
	for _, match := range matches {
		logins = append(logins, match.login)
	}
	return logins
}

// sameHost compares part by part, so that a * stands for one part.
func sameHost(pattern, host string) bool {
	if pattern == "docker.io" || pattern == "registry-1.docker.io" {
		pattern = name.DefaultRegistry
	}
	patterns, parts := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(patterns) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(patterns[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
