package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Right is a permission in the namespace of Theseus. An empty Group is that of Kubernetes' core; Name may be empty.
type Right struct{ Verb, Group, Resource, Name string }

// Cluster is the Gate of a page in the cluster. People sign in with a Kubernetes token, which their browser sends with
// each request. The API server says, to a client with that token, who that is and what that person may do. So the
// process of the page needs no permission to review tokens, and acts with none of its own.
type Cluster struct {
	// Feeds read the cluster with the permissions of this process.
	Feeds *Feeds
	// Acts are a migration's actions for a client of the person. may says whether that person has some rights.
	Acts func(client *kube.Client, migration string, may func(...Right) (bool, error)) (Actions, error)
	// Missing says how a user gets the rights to look.
	Missing func(user string) string

	version string
	host    string
	next    http.RoundTripper
	origins *http.CrossOriginProtection

	reviews, strangers chan struct{} // a place for each review under way
	lock               sync.Mutex
	known              map[[sha256.Size]byte]string // users by the hashes of their tokens
}

const (
	// maxReviews bounds how many reviews are under way at once for people that the API server knows, and maxStrangers
	// for all others: anyone may send tokens, but delays no one who has signed in.
	maxReviews   = 16
	maxStrangers = 4
	// maxKnown bounds how many tokens are known.
	maxKnown = 1000
)

// looks are the rights of which a person needs all, to see a migration. ConfigMaps hold its evidence, such as events of
// all namespaces.
func looks(migration string) []Right {
	const own = v1alpha1.Group
	return []Right{{"get", own, "migrations", migration}, {"list", own, "journalpages", ""},
		{"list", own, "planpages", ""}, {"list", own, "probereports", ""}, {"get", "", "configmaps", ""}}
}

// NewCluster makes the gate for the API server of a configuration, of which it uses no credentials.
func NewCluster(config *rest.Config, version string, feeds *Feeds) (*Cluster, error) {
	bare := rest.AnonymousClientConfig(config)
	bare.UserAgent = "theseus/" + version
	next, err := rest.TransportFor(bare)
	if err != nil {
		return nil, fmt.Errorf("the API server: %w", err)
	}
	address, _, err := rest.DefaultServerUrlFor(bare)
	if err != nil {
		return nil, fmt.Errorf("the API server %s: %w", bare.Host, err)
	}
	return &Cluster{Feeds: feeds, version: version, host: address.String(), next: next,
		origins: http.NewCrossOriginProtection(), reviews: make(chan struct{}, maxReviews),
		strangers: make(chan struct{}, maxStrangers), known: map[[sha256.Size]byte]string{}}, nil
}

// Ours implements Gate. The browser sends no credentials by itself. But a proxy before the page may add them.
func (c *Cluster) Ours(r *http.Request) *Refused {
	origin := r.Header.Get("Origin")
	from, err := url.Parse(origin)
	if c.origins.Check(r) != nil || origin != "" && (err != nil || from.Host != r.Host) || crossSite(r) {
		return &Refused{Code: http.StatusForbidden, Text: "requests from other sites are refused"}
	}
	return nil
}

// View implements Gate.
func (c *Cluster) View(r *http.Request, migration string) (*View, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" {
		return nil, &Refused{Code: http.StatusUnauthorized, Text: "Sign in to see the migrations of this cluster.",
			SignIn: true}
	}
	client, err := kube.New(&rest.Config{Host: c.host, Transport: transport.NewBearerAuthRoundTripper(token, c.next)},
		c.version)
	if err != nil {
		return nil, err
	}
	person, err := c.person(r.Context(), client, sha256.Sum256([]byte(token)))
	if err != nil {
		return nil, err
	}
	all, err := c.choice(r, person, migration)
	if err != nil {
		return nil, err
	}
	if migration == "" {
		migration = all[0]
	}
	check := func(ctx context.Context) error { return c.check(ctx, person, migration) }
	if err := check(r.Context()); err != nil {
		return nil, err
	}
	v := &View{Name: migration, User: person.name, Others: all, Check: check, Live: run.Live{Client: client},
		Lacks: person.name + " lacks the rights for this: `theseus rights` prints them"}
	acts := r.URL.Path == "/question" || r.URL.Path == "/do"
	if acts || r.URL.Path == "/plan" {
		if v.Actions, err = c.Acts(client, migration,
			func(rights ...Right) (bool, error) { return person.may(r.Context(), rights...) }); err != nil {
			return nil, err
		}
	}
	if acts { // what others look at does not keep a person from acting
		return v, nil
	}
	v.Feed, v.Close, err = c.Feeds.Open(r.Context(), migration)
	switch {
	case apierrors.IsNotFound(err):
		err = &Refused{Code: http.StatusNotFound, Text: "There is no migration " + migration + " in this cluster."}
	case errors.Is(err, errFull) && r.URL.Path == "/plan": // the page has the actions, and waits for the feed
		err = nil
	}
	return v, err
}

// choice lists the migrations that a person can choose, newest first, when the page asks for the plan.
func (c *Cluster) choice(r *http.Request, p *person, migration string) ([]string, error) {
	if migration != "" && r.URL.Path != "/plan" {
		return nil, nil
	}
	all, err := journal.List(r.Context(), p.client.Dynamic)
	switch {
	case apierrors.IsUnauthorized(err):
		return nil, p.refused()
	case apierrors.IsForbidden(err) && migration != "":
		return nil, nil // some may read one migration, and not list them
	case apierrors.IsForbidden(err):
		return nil, c.lacks(p, Right{"list", v1alpha1.Group, "migrations", ""})
	case err != nil:
		return nil, err
	case len(all) == 0 && migration == "":
		return nil, &Refused{Code: http.StatusNotFound, Text: "There is no migration in this cluster."}
	}
	var names []string
	for _, one := range all {
		names = append(names, one.Name)
	}
	return names, nil
}

// check says why a person may not look; nil if that person may.
func (c *Cluster) check(ctx context.Context, p *person, migration string) error {
	for _, right := range looks(migration) {
		if ok, err := p.may(ctx, right); err != nil {
			return err
		} else if !ok {
			return c.lacks(p, right)
		}
	}
	return nil
}

func (c *Cluster) lacks(p *person, right Right) *Refused {
	text := fmt.Sprintf("%s may not %s %s in the namespace %s.", p.name, right.Verb, right.Resource, v1alpha1.Namespace)
	if c.Missing != nil {
		text += "\n" + c.Missing(p.name)
	}
	return &Refused{Code: http.StatusForbidden, Text: text, SignIn: true}
}

// person is who has a token.
type person struct {
	client *kube.Client
	name   string
	limit  chan struct{}
	// unknown forgets whose token it is.
	unknown func()
}

// person asks the API server whose token has a hash, unless it has said so before: then each request with that token,
// of which View makes some in any case, says whether it still holds.
func (c *Cluster) person(ctx context.Context, client *kube.Client, hash [sha256.Size]byte) (*person, error) {
	p := &person{client: client, limit: c.strangers, unknown: func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		delete(c.known, hash)
	}}
	c.lock.Lock()
	p.name = c.known[hash]
	c.lock.Unlock()
	if p.name == "" {
		var err error
		if p.name, err = p.who(ctx); err != nil {
			return nil, err
		}
		c.lock.Lock()
		if len(c.known) >= maxKnown {
			clear(c.known)
		}
		c.known[hash] = p.name
		c.lock.Unlock()
	}
	p.limit = c.reviews
	return p, nil
}

// ask waits for its turn, and bounds the request.
func (p *person) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := p.client.Call(ctx)
	defer cancel()
	select {
	case p.limit <- struct{}{}:
		defer func() { <-p.limit }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := request(ctx)
	if apierrors.IsUnauthorized(err) {
		return p.refused()
	}
	return err
}

// refused says that the API server does not accept the token, nor any more.
func (p *person) refused() *Refused {
	p.unknown()
	return &Refused{Code: http.StatusUnauthorized,
		Text: "The API server does not accept this token: it is wrong, or has expired.", SignIn: true}
}

// who asks the API server for the name of the user.
func (p *person) who(ctx context.Context) (name string, err error) {
	err = p.ask(ctx, func(ctx context.Context) error {
		review, err := p.client.Typed.AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			name = review.Status.UserInfo.Username
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", &Refused{Code: http.StatusNotImplemented,
			Text: "The page needs Kubernetes 1.28 or later: this API server has no SelfSubjectReview."}
	case err == nil && name == "":
		err = &Refused{Code: http.StatusUnauthorized, Text: "The API server does not name the user of this token.",
			SignIn: true}
	}
	return name, err
}

// may asks the API server whether a person has all of some rights.
func (p *person) may(ctx context.Context, rights ...Right) (bool, error) {
	for _, right := range rights {
		allowed := false
		err := p.ask(ctx, func(ctx context.Context) error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: right.Group, Namespace: v1alpha1.Namespace, Verb: right.Verb,
					Resource: right.Resource, Name: right.Name}}}
			if right.Group == v1alpha1.Group {
				review.Spec.ResourceAttributes.Version = v1alpha1.Version
			}
			review, err := p.client.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
				review, metav1.CreateOptions{})
			if err == nil {
				allowed = review.Status.Allowed
			}
			return err
		})
		if err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

const (
	keepFeed = 2 * time.Minute
	// maxFeeds bounds how many migrations are read at once: each needs memory for its plan and its paths.
	maxFeeds = 3
	// loadWithin bounds how long a migration may take to be read the first time.
	loadWithin = time.Minute
)

// Feeds are the feeds of the migrations that people look at. Each is read while someone looks, and some time longer.
type Feeds struct {
	// Start makes the feed of a migration, and the function that reads the cluster for it until its context ends, or
	// until there is nothing more to read.
	Start func(ctx context.Context, migration string) (*Feed, func(context.Context), error)
	// Keep is how long a feed is read after its last viewer has gone; 0 means two minutes.
	Keep time.Duration

	lock sync.Mutex // never held while the cluster is read
	all  map[string]*shown
}

type shown struct {
	ready   chan struct{} // closed once there is a feed, or an error
	feed    *Feed
	err     error
	viewers int
	idle    time.Time // since when it has no viewers; zero while it has some
	stop    func()
}

// errFull is the error for a migration that cannot be shown in addition to those that people look at.
var errFull = &Refused{Code: http.StatusServiceUnavailable,
	Text: fmt.Sprintf("Users have %d other migrations open, and the page has no memory for more.", maxFeeds)}

// Open is the feed of a migration, for a viewer until it calls gone. Of feeds without viewers, the one that has been
// idle longest makes room.
func (f *Feeds) Open(ctx context.Context, migration string) (feed *Feed, gone func(), err error) {
	one, err := f.enter(migration)
	if err != nil {
		return nil, nil, err
	}
	gone = sync.OnceFunc(func() { f.gone(migration, one) })
	select {
	case <-one.ready:
		err = one.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		gone()
		return nil, nil, err
	}
	return one.feed, gone, nil
}

func (f *Feeds) enter(migration string) (*shown, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	one := f.all[migration]
	if one == nil {
		if len(f.all) >= maxFeeds {
			oldest := ""
			for name, other := range f.all {
				if other.viewers == 0 && (oldest == "" || other.idle.Before(f.all[oldest].idle)) {
					oldest = name
				}
			}
			if oldest == "" {
				return nil, errFull
			}
			f.end(oldest, f.all[oldest])
		}
		reading, cancel := context.WithCancel(context.Background())
		one = &shown{ready: make(chan struct{}), stop: cancel}
		if f.all == nil {
			f.all = map[string]*shown{}
		}
		f.all[migration] = one
		go f.read(reading, migration, one) // ends with stop
	}
	one.viewers, one.idle = one.viewers+1, time.Time{}
	return one, nil
}

// read makes the feed of a migration, and reads for it.
func (f *Feeds) read(ctx context.Context, migration string, one *shown) {
	loading, cancel := context.WithTimeout(ctx, loadWithin)
	feed, read, err := f.Start(loading, migration)
	cancel()
	one.feed, one.err = feed, err
	if err != nil { // the next viewer tries again
		f.lock.Lock()
		f.end(migration, one)
		f.lock.Unlock()
	}
	close(one.ready)
	if err == nil {
		read(ctx)
		f.lock.Lock()
		defer f.lock.Unlock()
		f.end(migration, one)
	}
}

// end stops a feed and forgets it. The lock is held.
func (f *Feeds) end(migration string, one *shown) {
	one.stop()
	if f.all[migration] == one {
		delete(f.all, migration)
	}
}

// gone lets a feed end some time after its last viewer has gone.
func (f *Feeds) gone(migration string, one *shown) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if one.viewers--; one.viewers > 0 {
		return
	}
	idle := time.Now()
	one.idle = idle
	time.AfterFunc(cmp.Or(f.Keep, keepFeed), func() {
		f.lock.Lock()
		defer f.lock.Unlock()
		if one.idle.Equal(idle) {
			f.end(migration, one)
		}
	})
}
