// Command workload is the application in a lab's cluster: well-behaved servers, and clients that count
// every request that fails.
//
//	workload serve   [flags]   HTTP, TCP stream and UDP servers
//	workload drive   [flags]   clients of all of them
//	workload intrude [flags]   a client that a NetworkPolicy denies
//	workload fetch   URL       one request: print the answer, or fail within two seconds
//	workload open    [flags]   answer on many ports
//	workload knock             try the targets on standard input, a JSON list, and print which answered
//	workload sum     [FILE...] add up the clients' records (or standard input) and print the sum
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/drive"
	"github.com/theseus-cni/theseus/lab/internal/workload/knock"
	"github.com/theseus-cni/theseus/lab/internal/workload/serve"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

const resolvConf = "/etc/resolv.conf"

func main() {
	runtime.GOMAXPROCS(1) // it mostly waits, and dozens of processes share one machine's processors
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name what to do: serve, drive, intrude, fetch, open, knock or sum")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case "serve":
		return runServe(ctx, flags, args[1:])
	case "drive":
		rate := flags.Float64("rate", 300, "requests per second in total")
		outside := flags.Bool("outside", false,
			"the client is not a pod: leave out requests that policy only allows to pods")
		world := flags.String("world", "", "HOST:PORT of a server outside of the cluster, also used as a target")
		worldRate := flags.Float64("world-rate", 8, "requests per second to it, of each kind")
		peer := flags.String("peer", "", "HOST:PORT of a UDP server, which gets all requests in place of the shop")
		record := recorder(flags)
		_ = flags.Parse(args[1:]) // exits on error
		if *peer != "" {
			d, err := drive.Peer(*peer, *rate)
			if err != nil {
				return err
			}
			return record.Drive(ctx, d)
		}
		d, err := drive.Shop(ctx, resolvConf, *rate, *outside)
		if err == nil && *world != "" {
			err = d.World(*world, *worldRate)
		}
		if err != nil {
			return err
		}
		return record.Drive(ctx, d)
	case "intrude":
		record := recorder(flags)
		_ = flags.Parse(args[1:])
		d, err := drive.Intruder(ctx, resolvConf)
		if err != nil {
			return err
		}
		return record.Drive(ctx, d)
	case "fetch":
		_ = flags.Parse(args[1:])
		return fetch(ctx, flags.Arg(0), os.Stdout)
	case "open":
		tcp := flags.String("tcp", "", "ports, separated by commas")
		udp := flags.String("udp", "", "ports, separated by commas")
		_ = flags.Parse(args[1:])
		t, err := ports(*tcp)
		if err != nil {
			return err
		}
		u, err := ports(*udp)
		if err != nil {
			return err
		}
		return knock.Open(ctx, t, u)
	case "knock":
		_ = flags.Parse(args[1:])
		var targets []knock.Target
		if err := json.NewDecoder(os.Stdin).Decode(&targets); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(knock.Try(ctx, targets))
	case "sum":
		_ = flags.Parse(args[1:])
		return sum(flags.Args(), os.Stdin, os.Stdout)
	}
	return fmt.Errorf("unknown command %q: use serve, drive, intrude, fetch, open, knock or sum", args[0])
}

func runServe(ctx context.Context, flags *flag.FlagSet, args []string) error {
	config := serve.Config{Name: os.Getenv("POD_NAME"), Log: os.Stdout}
	flags.StringVar(&config.HTTP, "http", "", "address of the HTTP server")
	flags.StringVar(&config.Stream, "stream", "", "address of the stream server")
	flags.StringVar(&config.UDP, "udp", "", "address of the UDP echo server")
	flags.StringVar(&config.Health, "health", ":8081", "address that answers /ready")
	flags.DurationVar(&config.Grace, "grace", 10*time.Second, "how long to continue serving after SIGTERM")
	_ = flags.Parse(args)
	return serve.Run(ctx, config)
}

// ports reads numbers separated by commas, and ranges such as 9000-9010.
func ports(text string) ([]int, error) {
	var all []int
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && ranged {
			to, err = strconv.Atoi(last)
		}
		if err != nil {
			return nil, err
		}
		for port := from; port <= to; port++ {
			all = append(all, port)
		}
	}
	return all, nil
}

// recorder declares the flags of a client's records.
func recorder(flags *flag.FlagSet) *drive.Recorder {
	r := &drive.Recorder{Pod: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"), Log: os.Stdout}
	flags.StringVar(&r.Dir, "record", "/record", "directory to record in")
	flags.StringVar(&r.Listen, "listen", ":8090", "address that answers /stats and /ready")
	return r
}

// fetch prints the response of a URL.
func fetch(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(out, answer.Body)
	return err
}

// sum prints the total of summaries; a file may contain several.
func sum(files []string, stdin io.Reader, out io.Writer) error {
	var all []tally.Summary
	read := func(r io.Reader) error {
		decoder := json.NewDecoder(r)
		for {
			var s tally.Summary
			err := decoder.Decode(&s)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read a summary: %w", err)
			}
			all = append(all, s)
		}
	}
	if len(files) == 0 {
		if err := read(stdin); err != nil {
			return err
		}
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return tally.Sum(all).Print(out)
}
