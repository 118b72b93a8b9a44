package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A repository is a clone of this repository.
type repository struct{ dir string }

// git runs git, and returns what it prints without the final newline.
func (r repository) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "TZ=UTC")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, &problems)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

// published returns the newest commit in the history of HEAD that is on main. If the clone has a remote, the commit is
// on the remote's main: nobody else can fetch a commit that is only on a local branch.
func (r repository) published() (string, error) {
	if shallow, err := r.git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		return "", errors.Join(err, errors.New("the clone has no history: git fetch --unshallow"))
	}
	for _, main := range []string{"refs/remotes/origin/main", "refs/heads/main"} {
		if _, err := r.git("rev-parse", "--verify", "--quiet", main); err == nil {
			return r.git("merge-base", "HEAD", main)
		}
	}
	return r.git("rev-parse", "HEAD")
}

// versionTag matches the tags of the root module; those of nested modules begin with a folder.
var versionTag = regexp.MustCompile(`^(v[01]\.\d+\.)(\d+)(-[0-9A-Za-z.-]+)?$`)

// version returns the version of the root module at a commit, as the go command names it: the tag of the commit, or
// else a pseudo-version above the highest tag in its history.
func (r repository) version(commit string) (string, error) {
	suffix, err := r.git("log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--abbrev=12", "--format=%cd-%H", commit)
	if err != nil {
		return "", err
	}
	suffix = suffix[:len("20060102150405-")+12]
	// A release is above its own pre-releases. git needs to know how a pre-release begins to sort them so.
	tags, err := r.git("-c", "versionsort.suffix=-", "tag", "--merged", commit, "--sort=-version:refname", "--list", "v*")
	if err != nil {
		return "", err
	}
	for tag := range strings.FieldsSeq(tags) {
		parts := versionTag.FindStringSubmatch(tag)
		if parts == nil {
			continue
		}
		if tagged, err := r.git("rev-parse", "refs/tags/"+tag+"^{commit}"); err != nil || tagged == commit {
			return tag, err
		}
		if parts[3] != "" {
			return tag + ".0." + suffix, nil
		}
		patch, err := strconv.Atoi(parts[2])
		return parts[1] + strconv.Itoa(patch+1) + "-0." + suffix, err
	}
	return "v0.0.0-" + suffix, nil
}

// files returns the regular files of a commit below folders, by their paths. Like the go command, it uses git archive.
func (r repository) files(commit string, under ...string) (map[string][]byte, error) {
	text, err := r.git(append([]string{"archive", "--format=tar", commit, "--"}, under...)...)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(bytes.NewReader([]byte(text))); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
}

// unpack writes the files of a commit into a folder.
func (r repository) unpack(commit, to string) error {
	files, err := r.files(commit)
	if err != nil {
		return err
	}
	for name, content := range files {
		name = filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
