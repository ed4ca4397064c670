package local

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/view"
)

// patience is how long a command may take: decisions take milliseconds, but the files may be read just then.
const patience = 10 * time.Second

// Pages are those of an admin endpoint: what there is, and what is asked for.
//
//	GET  /rollouts                          view.List
//	GET  /rollouts/NAMESPACE/NAME           view.Rollout
//	POST /rollouts/NAMESPACE/NAME/VERB      carries out a Command, with ?full=true or ?step=N; view.Rollout
//
// A command that cannot be carried out is answered 409 with the reason as text.
func (s *Source) Pages() []process.Page {
	return []process.Page{
		{Pattern: "GET /rollouts", Index: "/rollouts", About: "Rollouts, and how far they are; \"weir rollout\" shows and controls them", Handler: http.HandlerFunc(s.list)},
		{Pattern: "GET /rollouts/{namespace}/{name}", Handler: http.HandlerFunc(s.get)},
		{Pattern: "POST /rollouts/{namespace}/{name}/{verb}", Handler: http.HandlerFunc(s.command)},
	}
}

func (s *Source) list(w http.ResponseWriter, _ *http.Request) {
	process.Reply(w, view.List{Rollouts: append([]view.Rollout{}, s.Views()...)})
}

func (s *Source) get(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r.PathValue("namespace"), r.PathValue("name"))
}

func (s *Source) answer(w http.ResponseWriter, namespace, name string) {
	all := s.Views()
	i := slices.IndexFunc(all, func(v view.Rollout) bool { return v.Namespace == namespace && v.Name == name })
	if i < 0 {
		process.Text(w, http.StatusNotFound, ErrNotFound.Error()+"\n")
		return
	}
	process.Reply(w, all[i])
}

func (s *Source) command(w http.ResponseWriter, r *http.Request) {
	c := Command{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Command: command.Command{Verb: command.Verb(r.PathValue("verb"))}}
	if !slices.Contains(command.Verbs, c.Verb) {
		process.Text(w, http.StatusNotFound, "there is no such verb\n")
		return
	}
	query := r.URL.Query()
	if text := query.Get("full"); text != "" {
		full, err := strconv.ParseBool(text)
		if err != nil {
			process.Text(w, http.StatusBadRequest, "full is true or false\n")
			return
		}
		c.Full = full
	}
	if text := query.Get("step"); text != "" {
		step, err := strconv.Atoi(text)
		if err != nil || step < 1 {
			process.Text(w, http.StatusBadRequest, "step is a number from 1\n")
			return
		}
		c.Step = step
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	switch err := s.Do(ctx, c); {
	case errors.Is(err, ErrNotFound):
		process.Text(w, http.StatusNotFound, err.Error()+"\n")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		process.Text(w, http.StatusServiceUnavailable, "the process is busy or ending\n")
	case err != nil:
		process.Text(w, http.StatusConflict, err.Error()+"\n")
	default:
		s.answer(w, c.Namespace, c.Name)
	}
}
