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

// Help says how sources are written.
const Help = `A source is a file (.json, .yaml), a folder of them, sqlite:FILE, postgres://..., k8s:NAMESPACE/NAME (a FeatureFlag
of open-feature-operator), or, where values are enough, the http(s):// address of a server that speaks OFREP.`

// Open opens a source of flags, and returns what closes it.
func Open(ctx context.Context, a *app.App, text string) (provider.Source, func() error, error) {
	if IsServer(text) {
		return nil, nil, exit.Fail(exit.Usage, "name what that server has its flags from", "%s is a server, which tells values and no rules", text)
	}
	source, done, err := provider.OpenSource(ctx, text, func() (dynamic.Interface, error) { return dynamicClient(a) })
	return source, done, Error(err)
}

// Error adds a hint where an error brings none.
func Error(err error) error {
	if err == nil || exit.HintOf(err) != "" {
		return err
	}
	return exit.Fail(exit.Failed, "check that it is there and answers; theseus flags --help says how sources are written", "%w", err)
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

// IsServer says whether a source is a server that speaks OFREP.
func IsServer(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}
