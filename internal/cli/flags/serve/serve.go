package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"
	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/flags/provider"
)

// NewCommand makes the command theseus flags serve.
func NewCommand(a *app.App) *cobra.Command {
	var sources []string
	var listen string
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve flags by OFREP",
		Long: "Serves flags by OFREP, with an ETag for clients that poll; the first of several sources " +
			"that has a flag wins. A\n" +
			"source that breaks keeps its last good flags, and every answer reports that in the header\n" +
			"Theseus-Source-Status. There is no authentication: keep it on loopback, or put a proxy in front.\n" +
			"\n" + flagsource.Help,
		Args: usage.None,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), a, sources, listen)
		},
	}
	f := command.Flags()
	f.StringArrayVar(&sources, "source", nil, "source of flags (repeatable)")
	f.StringVar(&listen, "listen", "127.0.0.1:8016", "address to serve at; port 0 picks a free one")
	return command
}

func run(ctx context.Context, a *app.App, sources []string, listen string) error {
	if len(sources) == 0 {
		return exit.Fail(exit.Usage, "theseus flags serve --source flags.yaml", "no --source")
	}
	var providers []*provider.Provider
	for _, text := range sources {
		opened, stop, err := flagsource.OpenEvaluator(ctx, a, text)
		if stop != nil {
			defer stop()
		}
		if err != nil {
			return err
		}
		provider, ok := opened.(*provider.Provider)
		if !ok {
			return exit.Fail(exit.Usage, "point the clients at "+text+" itself",
				"%s is already a server of flags", text)
		}
		providers = append(providers, provider)
		go tellStates(ctx, a, provider) // ends with the command
	}
	on, err := net.Listen("tcp", listen)
	if err != nil {
		return exit.Fail(exit.Failed, "name a free address with --listen", "%v", err)
	}
	server := &http.Server{Handler: provider.Handler(providers...), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	fmt.Fprintf(a.Out, "serving %s at http://%s/ofrep/v1/evaluate/flags\n", strings.Join(sources, ", "), on.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(on) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return server.Shutdown(closing)
	}
}

// tellStates reports changes of a source's state on standard error.
func tellStates(ctx context.Context, a *app.App, provider *provider.Provider) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-provider.EventChannel():
			switch event.EventType {
			case of.ProviderReady:
				fmt.Fprintf(a.Err, "note: %s: READY\n", event.ProviderName)
			case of.ProviderConfigChange:
				fmt.Fprintf(a.Err, "note: %s: changed: %s\n", event.ProviderName, strings.Join(event.FlagChanges, ", "))
			default:
				fmt.Fprintf(a.Err, "note: %s: %s: %s\n", event.ProviderName, provider.Status().State,
					exit.OneLine(event.Message))
			}
		}
	}
}
