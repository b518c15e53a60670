//! Filters in a file, which say the class.

use std::path::PathBuf;

use flowgauge_capture::{Error, Filter};
use flowgauge_wire::LinkType;

/// The filters of a file in pcap-filter(7) syntax, one in each line; empty lines and those that begin with `#` are none.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    path: PathBuf,
    /// With the numbers of their lines.
    lines: Vec<(usize, String)>,
}

/// What is wrong with a file of filters.
#[derive(Debug, thiserror::Error)]
pub enum FiltersError {
    /// Nothing is in it.
    #[error("{} has no filter in it", .0.display())]
    Empty(PathBuf),
    /// A line is no filter, or none for packets of the link type.
    #[error("{}:{line}: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number.
        line: usize,
        /// What libpcap says.
        error: Error,
    },
}

impl FiltersError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        let known = match self {
            FiltersError::Line { error, .. } => error.hint(),
            FiltersError::Empty(_) => None,
        };
        known.unwrap_or_else(|| "each line is a filter in pcap-filter(7) syntax".to_owned())
    }
}

impl Filters {
    /// The filters in a file's text.
    ///
    /// # Errors
    /// [`FiltersError::Empty`].
    pub fn of(path: PathBuf, text: &str) -> Result<Filters, FiltersError> {
        let lines = text.lines().map(str::trim).zip(1..);
        let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<_> = lines
            .map(|(line, number)| (number, line.to_owned()))
            .collect();
        match lines.is_empty() {
            true => Err(FiltersError::Empty(path)),
            false => Ok(Filters { path, lines }),
        }
    }

    /// Whether classes are said otherwise.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Looks for lines that are filters for packets of no usual link type, before the type is known.
    ///
    /// # Errors
    /// [`FiltersError::Line`] of the first one.
    pub fn check(&self) -> Result<(), FiltersError> {
        const OTHERS: [LinkType; 4] = [
            LinkType::RAW,
            LinkType::LINUX_SLL,
            LinkType::PPP,
            LinkType::IEEE802_11_RADIOTAP,
        ];
        for (number, line) in &self.lines {
            let compiled = |link: &LinkType| self.compiled(*number, line, *link);
            if let Err(error) = compiled(&LinkType::ETHERNET)
                && !OTHERS.iter().any(|link| compiled(link).is_ok())
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The filters for packets of this link type.
    ///
    /// # Errors
    /// [`FiltersError::Line`] of one that does not compile.
    pub(crate) fn compile(&self, link: LinkType) -> Result<Vec<Filter>, FiltersError> {
        let lines = self.lines.iter();
        let compiled = lines.map(|(number, line)| self.compiled(*number, line, link));
        compiled.collect()
    }

    fn compiled(
        &self,
        line: usize,
        expression: &str,
        link: LinkType,
    ) -> Result<Filter, FiltersError> {
        const WHOLE: u32 = 262_144;
        Filter::compile(expression, link, WHOLE).map_err(|error| FiltersError::Line {
            path: self.path.clone(),
            line,
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Filters, FiltersError> {
        Filters::of("table".into(), text)
    }

    #[test]
    fn filters_are_lines() {
        let read = of("# web\n tcp port 80 \n\nudp\n").unwrap();
        let expected = [(2, "tcp port 80".to_owned()), (4, "udp".to_owned())];
        assert_eq!(read.lines, expected);
        assert!(matches!(of("#\n\n"), Err(FiltersError::Empty(_))));
    }

    #[test]
    fn wrong_lines_are_told_by_number() {
        of("tcp\nwlan type mgt\n").unwrap().check().unwrap();
        let wrong = of("tcp\n\ntcp prot 80\n").unwrap();
        let said = wrong.check().unwrap_err();
        assert!(said.to_string().starts_with("table:3: "), "{said}");
        let said = of("wlan type mgt").unwrap();
        let said = said.compile(LinkType::ETHERNET).unwrap_err();
        assert!(said.to_string().starts_with("table:1: "), "{said}");
    }
}
