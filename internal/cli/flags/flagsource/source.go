package flagsource

import (
	"context"
	"errors"
	"strings"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
)

// Help describes the syntax of sources.
const Help = `A source is a file (.json, .yaml), a folder of them, sqlite:FILE, postgres://..., k8s:NAMESPACE/NAME (a FeatureFlag
of open-feature-operator), or, if values are enough, the http(s):// address of an OFREP server.`

// Open opens a source of flags, and returns a function that closes it.
func Open(ctx context.Context, a *app.App, text string) (provider.Source, func() error, error) {
	if IsServer(text) {
		return nil, nil, exit.Fail(exit.Usage, "name the source from which that server reads its flags",
			"%s is a server, which has values but no rules", text)
	}
	source, done, err := provider.OpenSource(ctx, text, func() (dynamic.Interface, error) { return dynamicClient(a) })
	return source, done, Error(err)
}

// Error adds a hint to an error without one.
func Error(err error) error {
	if err == nil || exit.HintOf(err) != "" {
		return err
	}
	return exit.Fail(exit.Failed,
		"check that the source exists and answers; theseus flags --help describes the syntax of sources", "%w", err)
}

func dynamicClient(a *app.App) (dynamic.Interface, error) {
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	return client.Dynamic, nil
}

// FromHelp is the help of --from.
const FromHelp = "the cluster: a snapshot, or files or folders of Kubernetes YAML or JSON; - for standard input"

// Load reads a flag set once.
func Load(ctx context.Context, a *app.App, text string) (*flagset.Set, error) {
	source, done, err := Open(ctx, a, text)
	if err != nil {
		return nil, err
	}
	set, err := source.Load(ctx)
	return set, Error(errors.Join(err, done()))
}

// IsServer reports whether a source is an OFREP server.
func IsServer(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}
