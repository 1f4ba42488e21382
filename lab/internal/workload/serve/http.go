package serve

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/theseus-cni/theseus/lab/internal/workload/wire"
)

// answers answers everything with the server's name. While leaving, each answer also tells the client
// to hang up and come back elsewhere.
func answers(name string, leaving *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close")
			w.Header().Set(wire.Leaving, "yes")
		}
		fmt.Fprintln(w, name)
	})
}

// health answers /ready with 200 until the server is told to end.
func health(leaving *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if leaving.Load() {
			http.Error(w, "leaving", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}
