//! Storage in a bucket, by way of the program that speaks S3.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};

use super::service::{Answer, LONGEST, Owner, Request, Service, Told, What, line};
use super::{Object, ObjectError, Storage};
use crate::digest::Digest;

/// Storage in a bucket.
#[derive(Debug)]
pub struct Remote {
    service: Service,
    /// Programs that run and have nothing to do. One that reads an object is not among them.
    idle: Arc<Mutex<Vec<Line>>>,
}

impl Remote {
    /// Prepares to use a bucket. The program starts with the first request.
    #[must_use]
    pub fn new(service: Service) -> Self {
        Self { service, idle: Arc::default() }
    }

    /// Looks whether the bucket can be read, without a change.
    ///
    /// # Errors
    /// [`ObjectError::Service`] where it cannot.
    pub fn look(&self) -> Result<(), ObjectError> {
        self.ask(&What::Look, Line::done).map(drop)
    }

    /// Makes sure that the bucket takes objects, and belongs to this campaign.
    ///
    /// # Errors
    /// [`ObjectError::Service`] where the bucket cannot be used, or another campaign has it.
    pub fn begin(&self, owner: Owner) -> Result<(), ObjectError> {
        self.ask(&What::Begin(owner), Line::done).map(drop)
    }

    /// Sends a request and hears its answers. A program that failed is not used again.
    fn ask<T>(&self, what: &What, hear: impl FnOnce(&mut Line) -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        let mut line = self.line()?;
        line.send(what)?;
        let answer = hear(&mut line);
        if !matches!(answer, Err(ObjectError::Service(_))) {
            give_back(&self.idle, line);
        }
        answer
    }

    fn line(&self) -> Result<Line, ObjectError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Line::open(&self.service), Ok)
    }
}

fn give_back(idle: &Mutex<Vec<Line>>, line: Line) {
    idle.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

impl Storage for Remote {
    fn adopt(&self, out: &Path, digests: &[Digest]) -> Result<u64, ObjectError> {
        let what = What::Adopt { out: out.to_owned(), digests: digests.to_vec() };
        self.ask(&what, Line::done)
    }

    fn open(&self, digest: &Digest) -> Result<Box<dyn Read>, ObjectError> {
        let mut line = self.line()?;
        line.send(&What::Open(*digest))?;
        let left = match line.data() {
            Ok(left) => left,
            Err(error @ ObjectError::Service(_)) => return Err(error),
            Err(error) => {
                give_back(&self.idle, line);
                return Err(error);
            }
        };
        let mut reading = Reading { line: Some(line), left, idle: self.idle.clone() };
        reading.end_if_empty();
        Ok(Box::new(reading))
    }

    fn list(&self, see: &mut dyn FnMut(Object) -> Result<(), ObjectError>) -> Result<(), ObjectError> {
        // All of them first: `see` may ask this storage for more, and its error must not leave answers unread.
        let objects = self.ask(&What::List, |line| {
            let mut objects = Vec::new();
            loop {
                match line.hear()? {
                    Told::Objects(page) if page.is_empty() => return Ok(objects),
                    Told::Objects(page) => objects.extend(page),
                    told => return Err(line.unexpected(told)),
                }
            }
        })?;
        objects.into_iter().try_for_each(|object| see(object.into()))
    }

    fn remove(&self, digest: &Digest) -> Result<(), ObjectError> {
        self.ask(&What::Remove(*digest), Line::done).map(drop)
    }
}

/// A program that runs. It takes one request at a time.
#[derive(Debug)]
struct Line {
    service: Service,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Line {
    fn open(service: &Service) -> Result<Self, ObjectError> {
        let mut child = service.command().spawn().map_err(|error| service.unstarted(&error))?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).expect("both are pipes");
        let mut line = Self { service: service.clone(), child, input, output: BufReader::new(output) };
        line.write(&service.hello())?;
        Ok(line)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.input.write_all(bytes).map_err(|error| self.service.broken(&format!("takes no request: {error}")))
    }

    fn send(&mut self, what: &What) -> Result<(), ObjectError> {
        self.write(&line(&Request { id: 0, what: what.clone() }))
    }

    /// The next answer, without the bytes that may follow it.
    fn hear(&mut self) -> Result<Told, ObjectError> {
        let mut text = Vec::new();
        let read = (&mut self.output).take(LONGEST).read_until(b'\n', &mut text);
        if let Err(error) = read {
            return Err(self.service.broken(&format!("gives no answer: {error}")));
        }
        if text.is_empty() {
            return Err(self.service.broken("ended"));
        }
        match serde_json::from_slice::<Answer>(&text) {
            Ok(Answer { what: Told::Failed(fault), .. }) => Err(fault.into()),
            Ok(answer) => Ok(answer.what),
            Err(error) => Err(self.service.broken(&format!("gave an answer that is none: {error}"))),
        }
    }

    /// The end of a request. A long one has the program say from time to time that it lives.
    fn done(&mut self) -> Result<u64, ObjectError> {
        loop {
            match self.hear()? {
                Told::Done(grew) => return Ok(grew),
                Told::Working => {}
                told => return Err(self.unexpected(told)),
            }
        }
    }

    fn data(&mut self) -> Result<usize, ObjectError> {
        match self.hear()? {
            Told::Data(bytes) => Ok(bytes),
            told => Err(self.unexpected(told)),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is the end of the answer")]
    fn unexpected(&self, told: Told) -> ObjectError {
        self.service.broken(&format!("gave another answer than was asked for: {told:?}"))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An object on its way.
#[derive(Debug)]
struct Reading {
    /// `None` at the end of the object, or after an error.
    line: Option<Line>,
    /// Bytes of the present piece that were not read yet.
    left: usize,
    idle: Arc<Mutex<Vec<Line>>>,
}

impl Reading {
    /// An empty piece is the last: the program can do other things now.
    fn end_if_empty(&mut self) {
        if self.left == 0
            && let Some(line) = self.line.take()
        {
            give_back(&self.idle, line);
        }
    }
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(buffer.len());
        let Some(line) = self.line.as_mut().filter(|_| most > 0) else { return Ok(0) };
        let count = line.output.read(&mut buffer[..most])?;
        if count == 0 {
            let error = line.service.broken("ended");
            self.line = None;
            return Err(io::Error::other(error));
        }
        self.left -= count;
        if self.left == 0 {
            match line.data() {
                Ok(left) => self.left = left,
                Err(error) => {
                    self.line = None;
                    return Err(io::Error::other(error));
                }
            }
            self.end_if_empty();
        }
        Ok(count)
    }
}
