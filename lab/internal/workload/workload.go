// Package workload is the application that runs in a lab's cluster while its network is changed: an
// HTTP service, a replicated set with names of its own, TCP streams, UDP, DNS, an allowed and a denied
// path, and the clients of all of these, which count failures.
package workload

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
)

// manifest is deployed unchanged.
//
//go:embed workload.yaml
var manifest []byte

//go:embed outside.yaml
var outside []byte

// Namespace is where the workload runs.
const Namespace = "shop"

// RecordDir is the directory of every node in which the clients record: a file per client pod that
// ever ran there, each with one tally.Summary. Their sum is what the whole run sent and lost.
const RecordDir = "/var/lib/theseus-workload"

// demoRate is how many requests a second each client of the manifest sends.
const demoRate = 260

// driveArgs are the arguments of the clients in the manifest.
var driveArgs = fmt.Sprintf("[drive, --rate=%d]", demoRate)

// World is a server outside of the cluster that the clients send to as well, and how many requests a second of each
// kind; a Rate of 0 is the clients' default.
type World struct {
	Address string
	Rate    int
}

// Manifest returns the documents that deploy the workload. Each of its two clients sends rate requests a second
// inside the cluster; 0 is the rate of the demos.
func Manifest(rate int, world World) []byte {
	args := fmt.Sprintf("[drive, --rate=%d, --world=%s", cmp.Or(rate, demoRate), world.Address)
	if world.Rate > 0 {
		args += fmt.Sprintf(", --world-rate=%d", world.Rate)
	}
	return bytes.Replace(manifest, []byte(driveArgs), []byte(args+"]"), 1)
}

// Outside returns the document that deploys clients on the nodes' own network next to it.
func Outside() []byte { return append([]byte(nil), outside...) }
