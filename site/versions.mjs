// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Builds the site of this commit, as "main", and of the newest releases, each from the
// files of its release. Run by "make site-versions": node versions.mjs OUT
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { published, root, versions } from './.vitepress/pages.mjs'

const out = resolve(process.argv[2])
const all = versions()

// build builds the site of a version from a folder with its files.
function build(version, folder) {
  console.log(`site of ${version}`)
  const base = new URL(published(version)).pathname
  const env = { ...process.env, MAKEFLAGS: '', SITE_VERSION: version, SITE_BASE: base, SITE_OUT: 'bin/site' }
  execFileSync('make', ['site'], { cwd: folder, env, stdio: 'inherit' })
  cpSync(join(folder, 'bin/site'), join(out, version), { recursive: true })
}

rmSync(out, { recursive: true, force: true })
for (const version of all) {
  if (version === 'main') {
    build(version, root)
    continue
  }
  const folder = mkdtempSync(join(tmpdir(), 'lanyard-site-'))
  execFileSync('git', ['worktree', 'add', '--quiet', '--detach', folder, version], { cwd: root, stdio: 'inherit' })
  try {
    build(version, folder)
  } finally {
    execFileSync('git', ['worktree', 'remove', '--force', folder], { cwd: root })
  }
}

// The address without a version leads to the newest release.
const newest = all[1] ?? 'main'
writeFileSync(join(out, 'index.html'), `<!doctype html><meta charset="utf-8"><title>Lanyard</title>
<meta http-equiv="refresh" content="0; url=${newest}/"><a href="${newest}/">Documentation of Lanyard</a>
`)
cpSync(join(out, newest, '404.html'), join(out, '404.html'))
